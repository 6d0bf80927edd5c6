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
#   BENCH_FULL     any value adds phases with growing numbers of objects and workers, which take an hour
#   BENCH_OUT      a directory for results.json, default none
#
#   hack/bench.sh sizing     prints a table of the controller's memory, CPU time and requests for growing numbers of
#                            Foos, which have no replicas: Pods cost the cluster much and the controller nothing
#   SIZES   the numbers of Foos, ascending, default "1000 5000"
#   REST    the seconds for which to measure the idle controller, default 60

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
  local phases="Requests:200:${w} Progress:10:${w} Memory:8000:${w} Throughput:2000:${w} Full:600:${w} Full:1000:${w}
    Latency:200:${w} Growth:20000:${w} Backlog:10000:${w}"
  [[ -z "${BENCH_FULL:-}" ]] || phases+="
    Throughput:500:32:2 Throughput:1000:32:2 Throughput:5000:32:2 Throughput:10000:32:2
    Throughput:2000:1:2 Throughput:2000:2:2 Throughput:2000:4:2 Throughput:2000:16:2 Throughput:2000:32:2 Throughput:2000:64:2
    Latency:1000:${w}:2 Latency:5000:${w}:2 Latency:10000:${w}:2
    Memory:1000:${w} Memory:2000:${w} Memory:4000:${w} Shard:5000:8"
  [[ -z "${BENCH_FULL:-}" ]] || phases+=" CronTabs:1000:8 CronTabs:1000:32" # +drop:crontab
  BENCH_PHASES="${BENCH_PHASES:-${phases}}"
}

# programs NAME:OBJECTS... prints the programs that a phase measures in turns.
programs() {
  case "$1" in
    Throughput:* | Full:1000:*) echo ours peer plain ;;
    Full:*) echo ours peer ;;
    Latency:* | Growth:* | Backlog:*) echo ours plain ;;
    *) echo ours ;;
  esac
}

build() {
  case "$1" in
    bench.test) interruptible go -C "${ROOT}" test -c -tags bench -o "${WORK}/bin/bench.test" ./test/bench ;;
    plain) interruptible go -C "${ROOT}" build -o "${WORK}/bin/plain" ./test/bench/plain ;;
    peer) interruptible go -C "${ROOT}/test/bench/peer" build -o "${WORK}/bin/peer" . ;;
  esac
}

# turn NAME PROGRAM runs Test<NAME> with the program on a new cluster.
turn() {
  local status=0 crds=(crd.yaml)
  [[ "$1" != CronTabs ]] || crds+=(crontab-crd.yaml) # +drop:crontab
  # A simulated node takes 110 Pods. Only the phase Full has Pods, two for each Foo.
  CLUSTER_NODES=1
  [[ "$1" != Full ]] || CLUSTER_NODES=$((BENCH_OBJECTS * 2 / 100 + 2))
  CLUSTER_ARGS=""
  [[ "$1" != Shard ]] || CLUSTER_ARGS="--extra-args kube-apiserver=feature-gates=ShardedListAndWatch=true"
  export CLUSTER_NODES CLUSTER_ARGS
  say "$1 of $2, ${BENCH_OBJECTS} objects, ${BENCH_WORKERS} workers, round ${BENCH_ROUND}"
  # The caller tests the status, so errexit is off.
  own_cluster_up && install_crds "${crds[@]}" &&
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
  # The programs are built once a phase needs them.
  for who in bench.test "${order[@]}"; do
    [[ -e "${WORK}/bin/${who}" ]] || build "${who}"
  done
  : >"${WORK}/results"
  start=$(now)
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
  if interruptible "${WORK}/bin/report" -settled -results="${WORK}/results" >&2 && ((BENCH_ROUND >= 6 && BENCH_ROUND % 2 == 0)); then
    return
  fi
  (($(now) - $2 >= ${BENCH_MINUTES:-30} * 60000))
}

start_controller() {
  spawn "${WORK}/bin/sample-controller" -kubeconfig="${WORK}/home/.kube/config" \
    --metrics-bind-address=127.0.0.1:0 --metrics-secure=false --profiling \
    </dev/null >"${WORK}/logs/controller.log" 2>&1
  CONTROLLER="${SPAWNED}"
  echo "${CONTROLLER}" >"${WORK}/pids/controller"
  until grep -q 'Started workers' "${WORK}/logs/controller.log"; do
    running "${CONTROLLER}" || die "the controller exited: $(<"${WORK}/logs/controller.log")"
    sleep 0.2
  done
  ADDRESS=$(sed -n 's/.*"Serving" what="metrics" address="\([^"]*\)".*/\1/p' "${WORK}/logs/controller.log")
}

get() {
  "${WORK}/bin/curl" -sSf "http://${ADDRESS}$1"
}

metric() {
  get /metrics | awk -v pattern="^$1" '$0 ~ pattern { sum += $2 } END { printf "%.3f\n", sum }'
}

# create_foos FROM TO creates foo-FROM to foo-(TO-1) and waits until all Foos are ready.
create_foos() {
  local i
  for ((i = $1; i < $2; i++)); do
    printf -- '---\napiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {name: foo-%d}\nspec: {deploymentName: foo-%d, replicas: 0}\n' "${i}" "${i}"
  done >"${WORK}/tmp/foos.yaml"
  own_kubectl create -f "${WORK}/tmp/foos.yaml"
  until [[ "$(metric 'sample_controller_foos{ready="True",reason="DeploymentAvailable"}')" == "$2.000" ]]; do
    sleep 1
  done
}

# await_idle waits until the controller has sent no request for 4 seconds. Events are the last,
# because they have a rate limit of their own.
await_idle() {
  local before="" now
  until now=$(metric rest_client_requests_total) && [[ "${now}" == "${before}" ]]; do
    before="${now}"
    sleep 4
  done
}

spent() {
  echo "$(metric process_cpu_seconds_total) $(metric rest_client_requests_total)"
}

# row FOOS NEW BEFORE prints the row for FOOS Foos. NEW of them were created since spent printed BEFORE.
row() {
  local now memory idle
  now=$(spent)
  # Collects garbage, so that the heap is the live heap.
  get '/debug/pprof/heap?gc=1' >/dev/null
  memory="$(metric process_resident_memory_bytes) $(metric 'go_memstats_heap_alloc_bytes ')"
  idle=$(spent)
  sleep "${REST:-60}"
  echo "$1 $2 $3 ${now} ${memory} ${idle} $(spent)" | awk -v rest="${REST:-60}" '{
    printf "%6d %12.0f %14.0f %14.2f %14.2f %16.2f %16.1f\n", $1, $7 / 1048576, $8 / 1048576,
      $2 ? ($5 - $3) * 1000 / $2 : 0, $2 ? ($6 - $4) / $2 : 0, ($11 - $9) * 1000 / rest, ($12 - $10) * 60 / rest }'
}

sizing() {
  local have=0 size before
  interruptible build_static "${WORK}/bin/sample-controller"
  interruptible go -C "${ROOT}" build -o "${WORK}/bin/" ./test/curl
  own_cluster_up
  install_crds
  start_controller
  printf '%6s %12s %14s %14s %14s %16s %16s\n' Foos 'RSS [MiB]' 'heap [MiB]' 'CPU/Foo [ms]' 'requests/Foo' 'at rest [ms/s]' 'requests/min'
  row 0 0 "0 0"
  for size in ${SIZES:-1000 5000}; do
    before=$(spent)
    create_foos "${have}" "${size}"
    await_idle
    row "${size}" $((size - have)) "${before}"
    have="${size}"
  done
  grep VmHWM "/proc/${CONTROLLER}/status" 2>/dev/null || true
}

main() {
  local entry status=0
  : >"${WORK}/all-results"
  : >"${WORK}/go-bench"
  interruptible build_static "${WORK}/bin/sample-controller"
  interruptible go -C "${ROOT}" build -buildvcs=auto -o "${WORK}/bin/report" ./test/bench/report
  set_phases
  for entry in ${BENCH_PHASES}; do
    [[ ! "${entry}" =~ ${BENCH_RUN:-} ]] || phase "${entry}"
  done
  [[ ! Sync =~ ${BENCH_RUN:-} ]] || interruptible go -C "${ROOT}" test -run '^$' -bench '^BenchmarkSync$' -benchmem -count 3 . >"${WORK}/go-bench"
  [[ -s "${WORK}/all-results" || -s "${WORK}/go-bench" || -n "${FAILED_PHASES}" ]] || die "BENCH_RUN selects no phase"
  interruptible "${WORK}/bin/report" -results="${WORK}/all-results" -benchmarks="${WORK}/go-bench" -out="${BENCH_OUT:-}" || status=$?
  [[ -z "${FAILED_PHASES}" ]] || die "These phases failed, see above:${FAILED_PHASES}"
  return "${status}"
}

make_work bench
"${1:-main}"
