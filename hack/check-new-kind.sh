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

# Fails if `make new-kind` does not add a kind whose code builds, vets and passes its tests. Works
# on a copy and leaves the tree unchanged.
#
#   OWNS, EXTERNAL   as for make new-kind (default: ConfigMap, yes)

set -o errexit
set -o nounset
set -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
TMP=$(mktemp -d)
trap 'rm -rf "${TMP}"' EXIT

cd "${ROOT}"
tar --exclude=./.git --exclude=./bin --exclude=./.cluster -cf - . | tar -xf - -C "${TMP}"
mkdir -p bin/codegen "${TMP}/bin"
ln -s "${ROOT}/bin/codegen" "${TMP}/bin/codegen"
cd "${TMP}"
make new-kind GROUP=verify.example.org VERSION=v1alpha1 KIND=Verified OWNS="${OWNS:-ConfigMap}" EXTERNAL="${EXTERNAL-yes}" >"${TMP}/log" 2>&1 || {
  cat "${TMP}/log" >&2
  exit 1
}
go vet -tags e2e,faults . ./pkg/controller/verified ./test/e2e ./test/faults
go test ./pkg/controller/verified
go test -run "^TestSuites$" .
