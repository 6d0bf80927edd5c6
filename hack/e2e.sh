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

# Starts a cluster, runs the end-to-end tests on it, and removes the cluster and all files
# again, also after a failure or a signal.
#
#   hack/e2e.sh [ARGS OF go test...]     such as -run 'TestContract/rule_4'

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

# Walkthrough 1 builds the controller here, as its reader does.
BUILT="${ROOT}/sample-controller"
BUILT_BEFORE=""
[[ ! -e "${BUILT}" ]] || BUILT_BEFORE=yes

finish_e2e() {
  [[ -n "${BUILT_BEFORE}" ]] || rm -f "${BUILT}"
  finish "$1"
}

main() {
  local tests
  make_work e2e
  trap 'finish_e2e $?' EXIT
  build_programs
  # +drop:release
  # Only a test of the second run needs it.
  [[ $# -gt 0 ]] || build_chart
  # +drop:end
  e2e_cluster_up
  go_test -count=1 -tags e2e -v -timeout 30m -parallel 8 ./test/e2e "$@"
  # These need the audit log of all other tests, or remove the controller and the CRDs.
  tests='TestLeastPrivilege|TestUndeploy.*|TestInstall'
  tests+='|TestChart' # +drop:release
  [[ $# -gt 0 ]] || go_test -count=1 -tags e2e,teardown -v -timeout 30m -run "^(${tests})\$" ./test/e2e
}

main "$@"
