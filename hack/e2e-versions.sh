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

# Runs the walkthroughs and the end-to-end tests of the contract with the control plane of each version
# of Kubernetes in hack/cluster/versions, one after the other, and prints a table.
#
#   VERSIONS   which, such as "1.35 1.36", default all of them

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TESTS="Walkthrough|Contract"
# +drop:memcached
TESTS+="|Memcached"
# +drop:end
# +drop:crontab
TESTS+="|CronTab"
# +drop:end
TABLE=""

# run VERSION adds its line to the table.
run() {
  local start result=passed
  start=$(now)
  say "==> Kubernetes $1"
  CLUSTER_VERSION="$1" interruptible "${ROOT}/hack/e2e.sh" -run "^Test(${TESTS})" || result=FAILED
  TABLE+="| $("${BIN}/$1/kube-apiserver" --version) | ${result} | $(since "${start}") |"$'\n'
}

main() {
  local version
  cd "${ROOT}/hack/cluster/versions"
  for version in ${VERSIONS:-*}; do
    run "${version}"
  done
  printf '| version | walkthroughs and contract | time |\n|---|---|---|\n%s' "${TABLE}"
  [[ "${TABLE}" != *FAILED* ]]
}

cleanup() { :; }

cleanup_on_exit
main "$@"
