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

# Changes the leader among replicas with the flags of the manifests, while users change
# Foos, on a cluster with API Priority and Fairness that it starts and removes again. Also
# rolls the replicas from the build of the previous commit to the build of this one, and
# back. Prints tables. Needs Linux.
#
#   hack/failover.sh [ARGS OF go test...]     such as -run 'TestFailover/killed'
#
#   FAULTS         all, or part for one change of each kind; default all
#   FAILOVER_FROM  the commit to roll from, default HEAD^, or HEAD if the tree has
#                  uncommitted changes

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

export FAULTS="${FAULTS:-all}"
export CLUSTER_NODES="${CLUSTER_NODES:-20}"
# With API Priority and Fairness, but without the client-side limits of
# kube-controller-manager and the scheduler: at their default of 20 requests a second the
# test would only measure them.
export CLUSTER_QPS_LIMITS=on
# The test reads the history of all objects from etcd afterwards, so the API server must
# not compact it. (kwokctl 0.8 requires the first argument of each component before any
# second one.)
export CLUSTER_ARGS="--extra-args kube-apiserver=etcd-compaction-interval=0
  --extra-args kube-controller-manager=kube-api-qps=5000 --extra-args kube-scheduler=kube-api-qps=5000
  --extra-args kube-controller-manager=kube-api-burst=10000 --extra-args kube-scheduler=kube-api-burst=10000
  ${CLUSTER_ARGS:-}"

former_commit() {
  local commit="${FAILOVER_FROM:-HEAD^}"
  if [[ -z "${FAILOVER_FROM:-}" && -n "$(git -C "${ROOT}" status --porcelain 2>/dev/null)" ]]; then
    commit=HEAD
  fi
  echo "${commit}"
}

main() {
  local status=0
  if [[ "${FAULTS}" == part && ! -r /proc/self/cmdline ]]; then
    say "Skipping the leader changes, which need Linux."
    return
  fi
  make_work failover
  attend go -C "${ROOT}" build -o "${WORK}/bin/sample-controller" .
  build_former FAILOVER_FROM "$(former_commit)"
  # The tests tell the writers apart in the audit log. The policy is copied because up.sh
  # splits CLUSTER_ARGS at blanks, and the path of this repository may contain one.
  cp "${ROOT}/test/faults/audit-policy.yaml" "${WORK}/tmp/"
  export CLUSTER_ARGS="--kube-audit-policy ${WORK}/tmp/audit-policy.yaml ${CLUSTER_ARGS}"
  own_cluster_up
  # This includes the Deployment of the controller, whose Pods are simulated.
  kubectl apply -f "${ROOT}/artifacts/deploy/install.yaml"
  kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io
  [[ $# -gt 0 ]] || set -- -run '^TestFailover$'
  go_test -count=1 -tags faults -timeout 30m ./test/faults "$@" || status=$?
  [[ ! -e "${WORK}/report" ]] || cat "${WORK}/report"
  return "${status}"
}

main "$@"
