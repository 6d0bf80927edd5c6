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
# Each phase has a fresh cluster and compares the controller with a plain client on it. Fails
# if a row misses its target.
#
#   hack/bench.sh [ARGS OF go test...]
#
#   BENCH_RUN      run only the phases whose NAME:OBJECTS:WORKERS matches this regular
#                  expression, for example '^(Requests|Memory|Sync)'. Sync is BenchmarkSync,
#                  which needs no cluster
#   BENCH_PHASES   the phases, each NAME:OBJECTS:WORKERS for Test<NAME> of test/bench;
#                  default is all that the table needs
#   BENCH_FULL     any value adds phases with growing numbers of objects, which take an hour
#   BENCH_OUT      a directory for results.json and the plots, default none
#   PEER           a command that runs another controller of Foos, to measure as well, except
#                  for the rows that need this controller's metrics. It finds the cluster in
#                  KUBECONFIG and the number of its workers in BENCH_WORKERS.

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

FAILED=""

# set_phases sets BENCH_PHASES, unless the caller has, with the controller's default number of
# workers.
set_phases() {
  local w
  w=$("${WORK}/bin/sample-controller" --help 2>&1 | sed -n '/^ *-workers /{n;s/.*(default \([0-9]*\)).*/\1/p;}')
  [[ -n "${w}" ]] || die "sample-controller --help does not state the default of --workers"
  local phases="Converge:2000:32 Growth:20000:32 Scale:2000:32 Requests:200:${w} Latency:200:${w}
    Full:1000:${w} Memory:8000:${w} Backlog:10000:${w}"
  [[ -z "${BENCH_FULL:-}" ]] || phases+="
    Converge:500:32 Converge:1000:32 Converge:5000:32 Converge:10000:32
    Converge:2000:1 Converge:2000:2 Converge:2000:4 Converge:2000:8 Converge:2000:16 Converge:2000:64
    Latency:1000:${w} Latency:5000:${w} Latency:10000:${w}
    Memory:1000:${w} Memory:2000:${w} Memory:4000:${w}
    Backlog:10000:32 CronTabs:1000:8 CronTabs:1000:32 Shard:5000:8"
  BENCH_PHASES="${BENCH_PHASES:-${phases}}"
}

selected() {
  [[ "$1" =~ ${BENCH_RUN:-} ]]
}

# phase NAME OBJECTS WORKERS runs Test<NAME> on a new cluster.
phase() {
  export BENCH_OBJECTS="$2" BENCH_WORKERS="$3"
  # A simulated node takes 110 Pods. Only the phase Full has Pods.
  CLUSTER_NODES=1
  [[ "$1" != Full ]] || CLUSTER_NODES=$(($2 * 4 / 100 + 2))
  CLUSTER_ARGS=""
  [[ "$1" != Shard ]] || CLUSTER_ARGS="--extra-args kube-apiserver=feature-gates=ShardedListAndWatch=true"
  export CLUSTER_NODES CLUSTER_ARGS
  own_cluster_up
  install_crd crd.yaml crontab-crd.yaml
  say "$1 of ${BENCH_WHO}, ${BENCH_OBJECTS} objects, ${BENCH_WORKERS} workers"
  # The remaining phases run even if this one fails.
  go_test -count=1 -tags bench -v -run "^Test$1\$" -timeout 30m ./test/bench "${ARGS[@]}" || FAILED+=" $1:$2:$3"
  own_cluster_down
}

main() {
  local entry name objects workers status=0
  ARGS=("$@")
  make_work bench
  : >"${WORK}/results"
  : >"${WORK}/go-bench"
  attend build_static "${WORK}/bin/sample-controller"
  attend go -C "${ROOT}" build -buildvcs=auto -o "${WORK}/bin/report" ./test/bench/report
  set_phases
  export BENCH_WHO BENCH_PEER="${PEER:-}"
  for BENCH_WHO in ours ${PEER:+peer}; do
    for entry in ${BENCH_PHASES}; do
      selected "${entry}" || continue
      IFS=: read -r name objects workers <<<"${entry}"
      # CronTabs needs a controller of CronTabs, and Shard measures no controller.
      [[ "${BENCH_WHO}" == ours || ! "${name}" =~ ^(CronTabs|Shard)$ ]] || continue
      phase "${name}" "${objects}" "${workers}"
    done
  done
  ! selected Sync || attend go -C "${ROOT}" test -run '^$' -bench '^BenchmarkSync$' -benchmem -count 3 . >"${WORK}/go-bench"
  [[ -s "${WORK}/results" || -s "${WORK}/go-bench" || -n "${FAILED}" ]] || die "BENCH_RUN selects no phase"
  attend "${WORK}/bin/report" -results="${WORK}/results" -benchmarks="${WORK}/go-bench" -out="${BENCH_OUT:-}" || status=$?
  [[ -z "${BENCH_OUT:-}" ]] || attend go -C "${ROOT}/hack/plot" run . -results="$(cd "${BENCH_OUT}" && pwd)/results.json"
  [[ -z "${FAILED}" ]] || die "These phases failed, see above:${FAILED}"
  return "${status}"
}

main "$@"
