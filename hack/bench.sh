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

# Measures the controller, each figure on a new cluster and in the same run as a plain client
# that does the same, and prints a table of all figures with their targets. Fails if a
# target is missed.
#
#   hack/bench.sh [ARGS OF go test...]
#
#   BENCH_PHASES   the phases NAME:OBJECTS:WORKERS..., where NAME stands for the test
#                  Test<NAME> of test/bench; default all that the table needs
#   BENCH_FULL     if not empty, also measure over growing numbers of objects (an hour)
#   BENCH_OUT      a directory for results.json and the plots, default none
#   PEER           a command that runs another controller of Foos, which is also measured,
#                  except for figures from our metrics. It gets the cluster in KUBECONFIG
#                  and the number of workers in BENCH_WORKERS.

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

# The default of --workers.
DEFAULT_WORKERS=$(grep -rhoE --include='*.go' '^[[:space:]]*[dD]efaultWorkers *= *[0-9]+' "${ROOT}"/*.go "${ROOT}/pkg" | grep -oE '[0-9]+$')
PHASES="Converge:2000:32 Growth:20000:32 Scale:2000:32 Requests:200:${DEFAULT_WORKERS}
  Latency:200:${DEFAULT_WORKERS} Full:1000:${DEFAULT_WORKERS}
  Memory:8000:${DEFAULT_WORKERS} Backlog:10000:${DEFAULT_WORKERS}"
PHASES_FULL="Converge:500:32 Converge:1000:32 Converge:5000:32 Converge:10000:32
  Converge:2000:1 Converge:2000:2 Converge:2000:4 Converge:2000:8 Converge:2000:16 Converge:2000:64
  Latency:1000:${DEFAULT_WORKERS} Latency:5000:${DEFAULT_WORKERS} Latency:10000:${DEFAULT_WORKERS}
  Memory:1000:${DEFAULT_WORKERS} Memory:2000:${DEFAULT_WORKERS} Memory:4000:${DEFAULT_WORKERS}
  Backlog:10000:32 CronTabs:1000:8 CronTabs:1000:32 Shard:5000:8"
[[ -z "${BENCH_FULL:-}" ]] || PHASES+=" ${PHASES_FULL}"
BENCH_PHASES="${BENCH_PHASES:-${PHASES}}"
export BENCH_PEER="${PEER:-}"
# The phases that failed.
FAILED=""

# phase NAME OBJECTS WORKERS measures a phase on a new cluster.
phase() {
  export BENCH_OBJECTS="$2" BENCH_WORKERS="$3"
  # A simulated node takes 110 Pods. Only this phase has Pods.
  CLUSTER_NODES=1
  [[ "$1" != Full ]] || CLUSTER_NODES=$(($2 * 4 / 100 + 2))
  # Only this phase needs the alpha feature.
  CLUSTER_ARGS=""
  [[ "$1" != Shard ]] || CLUSTER_ARGS="--extra-args kube-apiserver=feature-gates=ShardedListAndWatch=true"
  export CLUSTER_NODES CLUSTER_ARGS
  own_cluster_up
  install_crd crd.yaml crontab-crd.yaml
  say "$1 of ${BENCH_WHO}, ${BENCH_OBJECTS} objects, ${BENCH_WORKERS} workers"
  # The figures of the other phases are still reported.
  go_test -count=1 -tags bench -v -run "^Test$1\$" -timeout 30m ./test/bench "${ARGS[@]}" || FAILED+=" $1:$2:$3"
  own_cluster_down
}

main() {
  local entry name objects workers
  ARGS=("$@")
  make_work bench
  attend build_static "${WORK}/bin/sample-controller"
  attend go -C "${ROOT}" build -buildvcs=auto -o "${WORK}/bin/report" ./test/bench/report
  for BENCH_WHO in ours ${PEER:+peer}; do
    export BENCH_WHO
    for entry in ${BENCH_PHASES}; do
      IFS=: read -r name objects workers <<<"${entry}"
      [[ "${BENCH_WHO}" == ours || "${name}" =~ ^(Full|Conv|Gr|Sc|Re|La|Me|Back) ]] || continue
      phase "${name}" "${objects}" "${workers}"
    done
  done
  attend go -C "${ROOT}" test -run '^$' -bench '^BenchmarkSync$' -benchmem -count 3 . >"${WORK}/go-bench"
  local status=0
  attend "${WORK}/bin/report" -results="${WORK}/results" -benchmarks="${WORK}/go-bench" -out="${BENCH_OUT:-}" || status=$?
  [[ -z "${BENCH_OUT:-}" ]] || attend go -C "${ROOT}/hack/plot" run . -results="$(cd "${BENCH_OUT}" && pwd)/results.json"
  [[ -z "${FAILED}" ]] || die "Failed phases, see above:${FAILED}"
  return "${status}"
}

main "$@"
