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

# Fails if update-codegen.sh would change, add or delete a file. Works on a copy and leaves
# the tree unchanged.

set -o errexit
set -o nounset
set -o pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
TMP=$(mktemp -d)
trap 'rm -rf "${TMP}"' EXIT

cd "${ROOT}"
tar -cf - go.mod go.sum hack pkg artifacts test/newkind | tar -xf - -C "${TMP}"
CODEGEN_GOBIN="${ROOT}/bin/codegen" "${TMP}/hack/update-codegen.sh" > "${TMP}/log" 2>&1 || {
  cat "${TMP}/log" >&2
  exit 1
}
for path in pkg test/newkind artifacts docs/api.md; do
  if ! diff -ru "${path}" "${TMP}/${path}"; then
    echo "Generated files are out of date (above: - in the tree, + generated). Run 'make generate' and commit the result." >&2
    exit 1
  fi
done
