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

# Measures, each on a fresh cluster of its own, how long it takes until many Foos
# that were created at once are ready, and until as many bare Deployments of the
# same shape are available. Prints a table; asserts nothing.
#
#   hack/bench.sh [ARGS OF go test...]
#
#   BENCH_OBJECTS   how many of each, default 1000

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

export BENCH_OBJECTS="${BENCH_OBJECTS:-1000}"
# A simulated node takes 110 Pods.
export CLUSTER_NODES="${CLUSTER_NODES:-$((BENCH_OBJECTS / 100 + 2))}"

kubectl() {
  "${BIN}/kubectl" --kubeconfig="${WORK}/home/.kube/config" "$@"
}

start_controller() {
  kubectl apply -f "${ROOT}/artifacts/examples/crd.yaml"
  kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io
  spawn "${WORK}/bin/sample-controller" -kubeconfig="${WORK}/home/.kube/config" \
    </dev/null >"${WORK}/logs/controller.log" 2>&1
  echo "${SPAWNED}" >"${WORK}/pids/controller"
}

# phase WHAT measures that on a cluster that has seen nothing else.
phase() {
  own_cluster_up
  if [[ "$1" == Foos ]]; then
    start_controller
  fi
  go_test -count=1 -tags bench -run '^$' -bench "^Benchmark$1\$" -benchtime 1x -timeout 15m ./test/bench "${@:2}"
  own_cluster_down
}

main() {
  make_work bench
  attend go -C "${ROOT}" build -o "${WORK}/bin/" .
  phase Foos "$@"
  phase Deployments "$@"
  echo
  printf '%-12s %8s %14s %14s %9s\n' objects count 'created [s]' 'all ready [s]' 'ready/s'
  cat "${WORK}"/row-Foos "${WORK}"/row-Deployments
}

main "$@"
