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

# Runs all other verify scripts, those that would take minutes in a short form. A failure does not stop
# the next ones. A script that exits with 75 could not be run here, for the reason that it says.

set -o errexit
set -o nounset
set -o pipefail

HACK=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
failed=()
for script in "${HACK}"/verify-*.sh; do
  name=$(basename "${script}")
  [[ "${name}" != verify-all.sh ]] || continue
  begun=${SECONDS}
  status=0
  "${script}" || status=$?
  case "${status}" in
    0) echo "ok   ${name} ($((SECONDS - begun)) s)" ;;
    75) echo "NOT RUN ${name} ($((SECONDS - begun)) s)" ;;
    *)
      echo "FAIL ${name} ($((SECONDS - begun)) s)"
      failed+=("${name}")
      ;;
  esac
done
if ((${#failed[@]} > 0)); then
  echo "Failed: ${failed[*]}" >&2
  exit 1
fi
