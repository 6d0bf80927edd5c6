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

# Fails if the program calls a function with a known vulnerability, of a module or of Go's
# standard library. It says NOT RUN, and exits with 75, where the database cannot be reached.
#
#   VULNDB   the database, default https://vuln.go.dev; a mirror of it, or file:///DIR

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DATABASE="${VULNDB:-https://vuln.go.dev}"
GOVULNCHECK=$(go -C "${ROOT}" tool -modfile=hack/tools/go.mod -n govulncheck)
status=0
output=$("${GOVULNCHECK}" -C "${ROOT}" -db "${DATABASE}" . 2>&1) || status=$?
case "${status}" in
  0) say "no vulnerability in ${DATABASE} affects the program" ;;
  3) die "known vulnerabilities affect the program; update the module or Go (go.mod), or remove the call:"$'\n'"${output}" ;;
  *)
    [[ "${output}" == *"Get \"${DATABASE}/"* ]] || die "govulncheck failed: ${output}"
    say "NOT RUN: the database of vulnerabilities cannot be reached (${output##*Get }); give VULNDB=URL of a mirror"
    exit 75
    ;;
esac
