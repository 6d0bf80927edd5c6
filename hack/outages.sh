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

# Kills the API server, etcd and the whole control plane while users change Foos, on a cluster that it
# starts and removes again. Prints a table. Needs Linux.
#
#   hack/outages.sh [ARGS OF go test...]     such as -run 'TestOutages/minute'

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

export CLUSTER_NODES="${CLUSTER_NODES:-20}"
# The test reads the history of all objects from etcd afterwards, so only the test may
# compact it. After a restart kwok leaves the nodes alone until the lease of the previous
# kwok has expired.
export CLUSTER_ARGS="${CLUSTER_ARGS:-} --extra-args kube-apiserver=etcd-compaction-interval=0
  --extra-args kwok-controller=node-lease-duration-seconds=40"

main() {
  local status=0
  make_work outages
  attend go -C "${ROOT}" build -o "${WORK}/bin/sample-controller" .
  own_cluster_up
  install_crd
  [[ $# -gt 0 ]] || set -- -run '^TestOutages$'
  go_test -count=1 -tags faults -timeout 60m ./test/faults "$@" || status=$?
  [[ ! -e "${WORK}/report" ]] || cat "${WORK}/report"
  return "${status}"
}

main "$@"
