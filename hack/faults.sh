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

# Runs every scenario with every fault at every request of the controller, with every fault
# of its watches, and random operations with random faults, on a cluster that it starts and
# removes again. Prints a table.
#
#   hack/faults.sh [ARGS OF go test...]     such as -run 'TestFaults/swap'
#
#   FAULTS           all, or part: for Foos a tenth of the requests and a twentieth of the
#                    watches, for the other kinds half as many, always the same ones;
#                    default all
#   FAULTS_PARALLEL  how many runs at the same time, default 8 per processor

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

export FAULTS="${FAULTS:-all}"
# A simulated node takes 110 Pods, and the Pods of a run stay until the end.
export CLUSTER_NODES="${CLUSTER_NODES:-100}"

processors() {
  getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2
}

main() {
  local status=0 parallel crds
  parallel="${FAULTS_PARALLEL:-$((8 * $(processors)))}"
  make_work faults
  attend go -C "${ROOT}" build -o "${WORK}/bin/sample-controller" .
  # The retries of the Deployment controller share a limit of ten a second (the default
  # rate limiter of its queue in kube-controller-manager 1.37), which many runs at the same
  # time use up. A Deployment whose ReplicaSet is just being collected may then wait for
  # minutes, unless a resync makes the controller sync it again.
  # The default range has 254 addresses, and the Services of a run stay until the end.
  export CLUSTER_ARGS="--extra-args kube-controller-manager=min-resync-period=20s
    --extra-args kube-apiserver=service-cluster-ip-range=10.0.0.0/12 ${CLUSTER_ARGS:-}"
  own_cluster_up
  crds=("${ROOT}"/artifacts/examples/*crd.yaml)
  install_crd "${crds[@]##*/}"
  kubectl apply -f "${ROOT}/test/faults/policies.yaml"
  [[ $# -gt 0 ]] || set -- -skip '^Test(Outages|Restore|Failover)$'
  go_test -count=1 -tags faults -timeout 90m -parallel "${parallel}" ./test/faults "$@" || status=$?
  [[ ! -e "${WORK}/report" ]] || cat "${WORK}/report"
  return "${status}"
}

main "$@"
