#!/usr/bin/env bash

# Copyright The sample-controller Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# Fails if update-manifests.sh would change a manifest, because a CRD or an RBAC marker has
# changed.

set -o errexit
set -o nounset
set -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
TMP=$(mktemp -d)
trap 'rm -rf "${TMP}"' EXIT

cd "${ROOT}"
tar -cf - go.mod go.sum ./*.go hack pkg artifacts | tar -xf - -C "${TMP}"
"${TMP}/hack/update-manifests.sh"
if ! diff -ru artifacts "${TMP}/artifacts"; then
  echo "Derived manifests are out of date (above: - in the tree, + derived). Run 'make generate' and commit the result." >&2
  exit 1
fi
