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

# Prints a table of the controller's memory, CPU time and requests for growing numbers of
# Foos on a new cluster. The Foos have no replicas, because Pods cost the cluster much and the
# controller nothing.
#
#   SIZES   the numbers of Foos, ascending, default "1000 5000"
#   REST    the seconds for which to measure the idle controller, default 60

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

SIZES="${SIZES:-1000 5000}"
REST="${REST:-60}"

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

# metric PATTERN prints the sum of the matching metrics.
metric() {
  get /metrics | awk -v pattern="^$1" '$0 ~ pattern { sum += $2 } END { printf "%.3f\n", sum }'
}

# create_foos FROM TO creates foo-FROM to foo-(TO-1) and waits until all Foos are ready.
create_foos() {
  local i
  for ((i = $1; i < $2; i++)); do
    printf -- '---\napiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {name: foo-%d}\nspec: {deploymentName: foo-%d, replicas: 0}\n' "${i}" "${i}"
  done >"${WORK}/tmp/foos.yaml"
  kubectl create -f "${WORK}/tmp/foos.yaml"
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

# row FOOS NEW CPU REQUESTS prints the row for FOOS Foos. NEW of them were created since the
# controller had used CPU seconds and sent REQUESTS requests.
row() {
  local cpu requests rss heap idle_cpu idle_requests
  cpu=$(metric process_cpu_seconds_total)
  requests=$(metric rest_client_requests_total)
  # Collects garbage, so that the heap is the live heap.
  get '/debug/pprof/heap?gc=1' >/dev/null
  rss=$(metric process_resident_memory_bytes)
  heap=$(metric 'go_memstats_heap_alloc_bytes ')
  idle_cpu=$(metric process_cpu_seconds_total)
  idle_requests=$(metric rest_client_requests_total)
  sleep "${REST}"
  printf '%s %s %s %s %s %s %s %s %s %s\n' "$1" "$2" "${rss}" "${heap}" "$3" "${cpu}" "$4" "${requests}" \
    "$(metric process_cpu_seconds_total) ${idle_cpu}" "$(metric rest_client_requests_total) ${idle_requests}" | awk -v rest="${REST}" '{
      n = $2 > 0 ? $2 : 1
      printf "%6d %12.0f %14.0f %14.2f %14.2f %16.2f %16.1f\n", $1, $3 / 1048576, $4 / 1048576,
        $2 ? ($6 - $5) * 1000 / n : 0, $2 ? ($8 - $7) / n : 0, ($9 - $10) * 1000 / rest, ($11 - $12) * 60 / rest }'
}

main() {
  local have=0 size cpu requests crds=("${ROOT}"/artifacts/examples/*crd.yaml)
  make_work sizing
  attend build_static "${WORK}/bin/sample-controller"
  attend go -C "${ROOT}" build -o "${WORK}/bin/" ./test/curl
  own_cluster_up
  install_crd "${crds[@]##*/}"
  start_controller
  printf '%6s %12s %14s %14s %14s %16s %16s\n' Foos 'RSS [MiB]' 'heap [MiB]' 'CPU/Foo [ms]' 'requests/Foo' 'at rest [ms/s]' 'requests/min'
  row 0 0 0 0
  for size in ${SIZES}; do
    cpu=$(metric process_cpu_seconds_total)
    requests=$(metric rest_client_requests_total)
    create_foos "${have}" "${size}"
    await_idle
    row "${size}" $((size - have)) "${cpu}" "${requests}"
    have="${size}"
  done
  grep VmHWM "/proc/${CONTROLLER}/status" 2>/dev/null || true
}

main "$@"
