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

# Runs the benchmark suite of test/bench and prints a table of figures with their targets.
# Fails if a row misses its target. In some phases the controller takes turns with a peer
# (test/bench/peer) and with a plain client (test/bench/plain). Each turn has a fresh cluster.
#
#   BENCH_RUN      run only the phases whose NAME:OBJECTS:WORKERS matches this regular
#                  expression, for example '^(Requests|Memory|Sync)'. Sync is BenchmarkSync,
#                  which needs no cluster
#   BENCH_PHASES   the phases, each NAME:OBJECTS:WORKERS or NAME:OBJECTS:WORKERS:ROUNDS for
#                  Test<NAME> of test/bench; default is all that the table needs
#   BENCH_MINUTES  how long a phase may take whose number of rounds is not given, default 30.
#                  It ends earlier when the intervals of all its ratios are within 5 %
#   BENCH_OUT      a file for all figures, as go test -bench prints them, default none

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The measured programs have Go's defaults unless a test says otherwise.
unset GOGC GOMEMLIMIT

FAILED_PHASES=""

# set_phases sets BENCH_PHASES, unless the caller has, with the controller's default number of
# workers.
set_phases() {
  local w
  w=$("${WORK}/bin/sample-controller" --help 2>&1 | sed -n '/^ *-workers /{n;s/.*(default \([0-9]*\)).*/\1/p;}')
  [[ -n "${w}" ]] || die "sample-controller --help does not state the default of --workers"
  BENCH_PHASES="${BENCH_PHASES:-Requests:200:${w} Progress:10:${w} Memory:8000:${w} Throughput:2000:${w} Full:600:${w}
    Full:1000:${w} Latency:200:${w} Sizing:1000:${w} Sizing:5000:${w}}"
}

# programs NAME:OBJECTS... prints the programs that a phase measures in turns.
programs() {
  case "$1" in
    Throughput:* | Full:1000:*) echo ours peer plain ;;
    Full:*) echo ours peer ;;
    Latency:*) echo ours plain ;;
    *) echo ours ;;
  esac
}

# turn NAME PROGRAM runs Test<NAME> with the program on a new cluster.
turn() {
  local status=0 crds=(crd.yaml)
  # Those of all kinds.
  [[ "$1" != Sizing ]] || crds=()
  # A simulated node takes 110 Pods. Only the phase Full has Pods, two for each Foo.
  CLUSTER_NODES=1
  [[ "$1" != Full ]] || CLUSTER_NODES=$((BENCH_OBJECTS * 2 / 100 + 2))
  export CLUSTER_NODES
  say "$1 of $2, ${BENCH_OBJECTS} objects, ${BENCH_WORKERS} workers, round ${BENCH_ROUND}"
  # The caller tests the status, so errexit is off.
  own_cluster_up && install_crds ${crds[@]+"${crds[@]}"} &&
    interruptible env -C "${ROOT}/test/bench" TEST_WORK="${WORK}" BENCH_WHO="$2" \
      "${WORK}/bin/bench.test" -test.v -test.run "^Test$1\$" -test.timeout 30m || status=$?
  end_recorded "${status}"
  "${ROOT}/hack/cluster.sh" down
  return "${status}"
}

# phase NAME:OBJECTS:WORKERS[:ROUNDS] gives each program one turn in each round. The order of
# the turns alternates, so that a machine that becomes slower or faster favours none.
phase() {
  local name rounds order who start
  IFS=: read -r name BENCH_OBJECTS BENCH_WORKERS rounds <<<"$1"
  export BENCH_OBJECTS BENCH_WORKERS BENCH_ROUND=0
  read -r -a order <<<"$(programs "$1")"
  [[ "${#order[@]}" -gt 1 ]] || rounds=1
  : >"${WORK}/results"
  start="${SECONDS}"
  until last_round "${rounds}" "${start}"; do
    BENCH_ROUND=$((BENCH_ROUND + 1))
    for who in "${order[@]}"; do
      # The remaining phases run even if this one fails.
      turn "${name}" "${who}" || { FAILED_PHASES+=" $1" && break 2; }
    done
    mapfile -t order < <(printf '%s\n' "${order[@]}" | tac)
  done
  cat "${WORK}/results" >>"${WORK}/all-results"
}

# last_round ROUNDS START succeeds after the last round of a phase that began at START: after
# ROUNDS; if that is empty, when the time is over, or when the intervals are narrow. These are
# not looked at before six rounds, because few figures may agree by chance, nor after an odd
# number, in which one order has one turn more.
last_round() {
  if [[ -n "$1" ]]; then
    ((BENCH_ROUND >= $1))
    return
  fi
  ((BENCH_ROUND > 1)) || return 1
  if interruptible "${WORK}/bin/report" -settled "${WORK}/results" >&2 && ((BENCH_ROUND >= 6 && BENCH_ROUND % 2 == 0)); then
    return
  fi
  ((SECONDS - $2 >= ${BENCH_MINUTES:-30} * 60))
}

main() {
  local entry status=0
  : >"${WORK}/all-results"
  interruptible build_static "${WORK}/bin/sample-controller"
  interruptible go -C "${ROOT}" build -o "${WORK}/bin/" ./test/bench/plain ./test/bench/report
  interruptible go -C "${ROOT}/test/bench/peer" build -o "${WORK}/bin/peer" .
  interruptible go -C "${ROOT}" test -c -tags bench -o "${WORK}/bin/bench.test" ./test/bench
  set_phases
  for entry in ${BENCH_PHASES}; do
    [[ ! "${entry}" =~ ${BENCH_RUN:-} ]] || phase "${entry}"
  done
  [[ ! Sync =~ ${BENCH_RUN:-} ]] || interruptible go -C "${ROOT}" test -run '^$' -bench '^BenchmarkSync$' -benchmem -count 3 . >>"${WORK}/all-results"
  [[ -s "${WORK}/all-results" || -n "${FAILED_PHASES}" ]] || die "BENCH_RUN selects no phase"
  [[ -z "${BENCH_OUT:-}" ]] || cp "${WORK}/all-results" "${BENCH_OUT}"
  interruptible "${WORK}/bin/report" "${WORK}/all-results" || status=$?
  [[ -z "${FAILED_PHASES}" ]] || die "These phases failed, see above:${FAILED_PHASES}"
  return "${status}"
}

make_work bench
main
