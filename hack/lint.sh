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

# Checks the sources without running them: formatting, go vet, golangci-lint
# (.golangci.yml), the syntax of the shell scripts, and the workflows of GitHub.

set -o errexit
set -o nounset
set -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"
TAGS=e2e,faults,bench,soak,teardown,node
failed=0
complain() {
  echo "$1" >&2
  failed=1
}

sources() { # ending
  find . \( -path ./bin -o -path ./dist -o -path ./.git -o -path ./.cluster \) -prune -o -type f -name "*.$1" -print
}

unformatted=$(sources go | xargs gofmt -l)
[[ -z "${unformatted}" ]] || complain "not gofmt-ed: ${unformatted}"

while IFS= read -r script; do
  bash -n "${script}" || complain "${script}: bash cannot parse it"
done < <(sources sh)

silenced=$(sources go | grep -v '^./pkg/generated/' | xargs grep -ln '//''nolint' || true)
[[ -z "${silenced}" ]] || complain "linters are silenced in: ${silenced}; fix the code instead"

go vet -tags "${TAGS}" ./... || complain "go vet failed"
go -C test/bench/peer vet . || complain "go vet failed for test/bench/peer" # +drop:bench

mkdir -p bin/tools
go build -C hack/tools -o ../../bin/tools/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/tools/golangci-lint run --allow-parallel-runners --timeout 15m ./... || complain "golangci-lint failed"

go build -C hack/tools/workflows -o ../../../bin/tools/actionlint github.com/rhysd/actionlint/cmd/actionlint
# Programs that it would run if they happened to be installed.
bin/tools/actionlint -shellcheck= -pyflakes= .github/workflows/*.yaml || complain "actionlint failed"

exit "${failed}"
