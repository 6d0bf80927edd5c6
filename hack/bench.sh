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
# same shape are available. Then how late the Jobs of as many CronTabs are that are due
# in the same second, and how long as many bare Jobs of the same shape take in the same
# cluster. Prints tables; asserts nothing but that each CronTab starts one Job.
#
#   hack/bench.sh [ARGS OF go test...]
#
#   BENCH_OBJECTS   how many of each, default 1000
#   BENCH_PHASES    what to measure, default "Foos Deployments CronTabs"
#   BENCH_WORKERS   with how many workers the controller starts Jobs, and as many
#                   creations at a time of bare ones, default "8 32"

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

export BENCH_OBJECTS="${BENCH_OBJECTS:-1000}"
BENCH_PHASES="${BENCH_PHASES:-Foos Deployments CronTabs}"
WORKERS="${BENCH_WORKERS:-8 32}"
# A simulated node takes 110 Pods.
export CLUSTER_NODES="${CLUSTER_NODES:-$((BENCH_OBJECTS / 100 + 2))}"

kubectl() {
  "${BIN}/kubectl" --kubeconfig="${WORK}/home/.kube/config" "$@"
}

# start_controller MANIFEST FLAGS... starts it once the CRD of that manifest is served.
start_controller() {
  kubectl apply -f "${ROOT}/artifacts/examples/$1"
  # It fails where a CRD has no conditions yet.
  until kubectl wait --for=condition=Established -f "${ROOT}/artifacts/examples/$1"; do
    sleep 0.2
  done
  spawn "${WORK}/bin/sample-controller" -kubeconfig="${WORK}/home/.kube/config" "${@:2}" \
    </dev/null >"${WORK}/logs/controller.log" 2>&1
  echo "${SPAWNED}" >"${WORK}/pids/controller"
}

# phase WHAT measures that on a cluster that has seen nothing else.
phase() {
  own_cluster_up
  case "$1" in
    Foos) start_controller crd.yaml --controllers=foo ;;
    CronTabs) start_controller crontab-crd.yaml --controllers=crontab --workers="${BENCH_WORKERS}" ;;
  esac
  go_test -count=1 -tags bench -run '^$' -bench "^Benchmark$1\$" -benchtime 1x -timeout 15m ./test/bench "${@:2}"
  own_cluster_down
}

main() {
  local phase
  make_work bench
  attend go -C "${ROOT}" build -o "${WORK}/bin/" .
  for phase in ${BENCH_PHASES}; do
    for BENCH_WORKERS in $([[ "${phase}" == CronTabs ]] && echo "${WORKERS}" || echo 8); do
      export BENCH_WORKERS
      phase "${phase}" "$@"
    done
  done
  if ls "${WORK}"/row-{Foos,Deployments} >/dev/null 2>&1; then
    printf '\n%-12s %8s %14s %14s %9s\n' objects count 'created [s]' 'all ready [s]' 'ready/s'
    cat "${WORK}"/row-Foos "${WORK}"/row-Deployments
  fi
  if ls "${WORK}"/row-CronTabs-* >/dev/null 2>&1; then
    printf '\n%-12s %8s %8s %10s %10s %10s %10s\n' Jobs count workers 'p50 [s]' 'p99 [s]' 'max [s]' 'p99/POST'
    cat "${WORK}"/row-CronTabs-*
  fi
}

main "$@"
