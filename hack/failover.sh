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

# Changes the leader among replicas that run as the manifests say, while users
# change Foos, on a cluster of its own with the API server's Priority and Fairness
# on, and removes all of it again, however that ends. Replicas are also rolled from
# the former commit's build to this one's, and back. Prints tables. Needs Linux.
#
#   hack/failover.sh [ARGS OF go test...]     such as -run 'TestFailover/killed'
#
#   FAULTS         all, or part for one change of each kind; default all
#   FAILOVER_FROM  the commit to roll from, default HEAD^, or HEAD where something
#                  is not committed yet

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

export FAULTS="${FAULTS:-all}"
export CLUSTER_NODES="${CLUSTER_NODES:-20}"
# The API server alone limits anybody here: at their own default of 20 requests a
# second the controllers of Deployments and ReplicaSets would be all that is measured.
export CLUSTER_QPS_LIMITS=on
# What happened is read from etcd afterwards, so nobody may compact it. (kwokctl 0.8
# wants the first of each component's arguments before any second one.)
export CLUSTER_ARGS="--extra-args kube-apiserver=etcd-compaction-interval=0
  --extra-args kube-controller-manager=kube-api-qps=5000 --extra-args kube-scheduler=kube-api-qps=5000
  --extra-args kube-controller-manager=kube-api-burst=10000 --extra-args kube-scheduler=kube-api-burst=10000
  ${CLUSTER_ARGS:-}"

# former_commit prints the commit to roll from, or nothing where there is none that
# could run beside this one.
former_commit() {
  local commit="${FAILOVER_FROM:-HEAD^}"
  if [[ -z "${FAILOVER_FROM:-}" && -n "$(git -C "${ROOT}" status --porcelain 2>/dev/null)" ]]; then
    commit=HEAD
  fi
  git -C "${ROOT}" cat-file -e "${commit}:artifacts/deploy/install.yaml" 2>/dev/null || return 0
  git -C "${ROOT}" rev-parse --short "${commit}"
}

# build_former builds what is rolled from, and puts its manifests beside it.
build_former() {
  local commit tree="${WORK}/tmp/former"
  mkdir -p "${WORK}/former" "${tree}"
  commit=$(former_commit)
  if [[ -z "${commit}" ]]; then
    [[ -z "${FAILOVER_FROM:-}" ]] || die "FAILOVER_FROM=${FAILOVER_FROM} is no commit with artifacts/deploy/install.yaml"
    say "There is no former commit here: replicas are rolled from this very build to itself."
    cp "${WORK}/bin/sample-controller" "${ROOT}/artifacts/deploy/install.yaml" "${WORK}/former/"
    return
  fi
  say "Replicas are rolled from the build of commit ${commit}."
  git -C "${ROOT}" archive "${commit}" | tar -x -C "${tree}"
  attend go -C "${tree}" build -buildvcs=false -o "${WORK}/former/" .
  cp "${tree}/artifacts/deploy/install.yaml" "${WORK}/former/"
}

main() {
  local status=0
  if [[ "${FAULTS}" == part && ! -r /proc/self/cmdline ]]; then
    say "No change of leader is tried here: that needs Linux."
    return
  fi
  make_work failover
  attend go -C "${ROOT}" build -o "${WORK}/bin/" .
  build_former
  own_cluster_up
  # With the Deployment: its Pods are simulated, and do nothing.
  kubectl apply -f "${ROOT}/artifacts/deploy/install.yaml"
  kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io
  [[ $# -gt 0 ]] || set -- -run '^TestFailover$'
  go_test -count=1 -tags faults -timeout 30m ./test/faults "$@" || status=$?
  [[ ! -e "${WORK}/report" ]] || cat "${WORK}/report"
  return "${status}"
}

main "$@"
