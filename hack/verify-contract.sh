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

# Fails if a rule of docs/contract.md, or of the contract of a controller below
# pkg/controller (docs/NAME.md for NAME), has no test that names it.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=$(find . \( -path ./bin -o -path ./dist -o -path ./.git -o -path ./.cluster \) -prune -o -name '*_test.go' -print | xargs cat)
failed=0
contracts=(docs/contract.md)
for controller in pkg/controller/*/controller.go; do
  [[ -e "${controller}" ]] || continue
  contracts+=("docs/$(basename "$(dirname "${controller}")").md")
done
for contract in "${contracts[@]}"; do
  if [[ ! -e "${contract}" ]]; then
    echo "${contract}: there is a controller of that name, but no such file" >&2
    failed=1
    continue
  fi
  rules=0
  while IFS= read -r rule; do
    rules=$((rules + 1))
    if ! grep -q "rule ${rule}: " <<< "${tests}"; then
      echo "${contract}: no test says \"rule ${rule}: …\"" >&2
      failed=1
    fi
  done < <(sed -n '/^| rule |/,/^$/s/^| \([A-Z]\{0,1\}[0-9][0-9]*\) | .*/\1/p' "${contract}")
  if ((rules == 0)); then
    echo "${contract}: no rules found in its table" >&2
    failed=1
  fi
done
exit "${failed}"
