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

# Runs the benchmark suite of test/bench and prints its figures with benchstat, beside those of a peer
# (test/bench/peer) with which the controller takes turns. Each turn has a fresh cluster. Fails if the
# controller needs more memory than the manifests allow.
#
#   BENCH_RUN      run only the phases whose NAME:OBJECTS matches this regular expression, for
#                  example '^(Full|Memory)'
#   BENCH_PHASES   the phases, each NAME:OBJECTS for Test<NAME> of test/bench
#   BENCH_ROUNDS   how often each is measured, default 10; below 6 there is no interval. Memory is
#                  measured once, and without the peer
#   BENCH_OUT      a file for all figures, as go test -bench prints them, default none

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The measured programs have Go's defaults unless a test says otherwise.
unset GOGC GOMEMLIMIT

FAILED_PHASES=""

# turn NAME PROGRAM runs Test<NAME> with the program on a new cluster.
turn() {
  local status=0
  # A simulated node takes 110 Pods. Only the phase Full has Pods, two for each Foo.
  CLUSTER_NODES=1
  [[ "$1" != Full ]] || CLUSTER_NODES=$((BENCH_OBJECTS * 2 / 100 + 2))
  export CLUSTER_NODES
  say "$1 of $2, ${BENCH_OBJECTS} objects, round ${round}"
  # The caller tests the status, so errexit is off.
  own_cluster_up && install_crds crd.yaml && { [[ "$1" == Full ]] || pause_controllers; } &&
    interruptible env -C "${ROOT}/test/bench" TEST_WORK="${WORK}" BENCH_WHO="$2" \
      "${WORK}/bin/bench.test" -test.v -test.run "^Test$1\$" -test.timeout 30m || status=$?
  end_recorded "${status}"
  "${ROOT}/hack/cluster.sh" down
  return "${status}"
}

# phase NAME:OBJECTS gives each program one turn in each round. The order of the turns
# alternates, so that a machine that becomes slower or faster favours none.
phase() {
  local name round who rounds="${BENCH_ROUNDS:-10}" order=(ours peer)
  IFS=: read -r name BENCH_OBJECTS <<<"$1"
  export BENCH_OBJECTS
  # Nothing would tell when the peer is done. Memory varies little.
  [[ "${name}" != Memory ]] || { rounds=1 && order=(ours); }
  for ((round = 1; round <= rounds; round++)); do
    for who in "${order[@]}"; do
      # The remaining phases run even if this one fails.
      turn "${name}" "${who}" || { FAILED_PHASES+=" $1" && return; }
    done
    mapfile -t order < <(printf '%s\n' "${order[@]}" | tac)
  done
}

main() {
  local entry results="${WORK}/results"
  : >"${results}"
  interruptible build_static "${WORK}/bin/sample-controller"
  interruptible go -C "${ROOT}/test/bench/peer" build -o "${WORK}/bin/peer" .
  interruptible go -C "${ROOT}" test -c -tags bench -o "${WORK}/bin/bench.test" ./test/bench
  for entry in ${BENCH_PHASES:-Memory:8000 Throughput:2000 Full:600 Latency:200}; do
    [[ ! "${entry}" =~ ${BENCH_RUN:-} ]] || phase "${entry}"
  done
  [[ -s "${results}" || -n "${FAILED_PHASES}" ]] || die "BENCH_RUN selects no phase"
  [[ -z "${BENCH_OUT:-}" ]] || cp "${results}" "${BENCH_OUT}"
  # A change is that from the peer to this controller.
  interruptible go tool -modfile="${ROOT}/hack/tools/go.mod" benchstat -col '/who@(peer ours)' "${results}"
  [[ -z "${FAILED_PHASES}" ]] || die "These phases failed, see above:${FAILED_PHASES}"
}

make_work bench
main
