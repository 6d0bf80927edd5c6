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

# Builds and starts the controller, creates example-foo, waits until it is Ready, and then
# prints the controller's log until Ctrl-C.
#
#   KUBECONFIG        the cluster to use; without it the script starts a local cluster and
#                     stops it at the end
#   CLUSTER_NAME, CLUSTER_DIR, ...   for the local cluster, as in cluster/up.sh
#   CONTROLLER_ARGS   more flags for the controller, split at blanks, such as -v=4

# shellcheck disable=SC2034,SC2317 # lib.sh uses the variables and calls cleanup

set -o errexit -o nounset -o pipefail

# shellcheck source=cluster/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/cluster/lib.sh"

# One stream keeps the order of lines when the output goes to a file.
exec 2>&1

CRD="${ROOT}/artifacts/examples/crd.yaml"
EXAMPLE="${ROOT}/artifacts/examples/example-foo.yaml"

RUN_DIR=""
LOG=""
CONTROLLER=""
FOLLOWER=""
# What cleanup has to undo or to mention.
STOP_CLUSTER=""
LEFT_BEHIND=""
SHOWN=""

# KUBECONFIG may list several files, which both kubectl and the controller merge.
KUBECONFIG="${KUBECONFIG:-}"
LOCAL=""
if [[ -z "${KUBECONFIG}" ]]; then
  LOCAL=yes
  KUBECONFIG="${CLUSTER_KUBECONFIG}"
elif [[ "${KUBECONFIG}" != /* && "${KUBECONFIG}" != *:* ]]; then
  # The user may copy it to a terminal with another working directory.
  KUBECONFIG="${PWD}/${KUBECONFIG}"
fi
export KUBECONFIG

KUBECTL="${BIN}/kubectl"

# timed TITLE CMD... announces CMD and says how long it took. CMD runs without errexit.
timed() {
  local title="$1" start status=0
  shift
  say "==> ${title}"
  start=$(now)
  "$@" || status=$?
  if [[ "${status}" -eq 0 ]]; then
    say "    done ($(since "${start}"))"
  else
    say "    FAILED after $(since "${start}")"
  fi
  return "${status}"
}

# --- Cleanup ----------------------------------------------------------------

cleanup() {
  local status="$1"
  # The controller first: to release its lease it needs the API server.
  stop_controller
  stop_following
  if [[ -n "${STOP_CLUSTER}" && -e "${CLUSTER_MARKER}" ]]; then
    timed "Stopping the local cluster" interruptible "${ROOT}/hack/cluster/down.sh"
  elif [[ -n "${LEFT_BEHIND}" ]]; then
    say_what_stays
  fi
  [[ -z "${RUN_DIR}" ]] || rm -rf "${RUN_DIR}"
  rmdir "${ROOT}/.cluster" 2>/dev/null
  # Ctrl-C while the log is shown is the normal end.
  if [[ -n "${SHOWN}" && "${status}" -gt 128 ]]; then
    exit 0
  fi
}

stop_controller() {
  [[ -n "${CONTROLLER}" ]] && running "${CONTROLLER}" || return 0
  say ""
  timed "Stopping the controller" end_controller
}

# end_controller stops the controller; a second Ctrl-C kills it.
end_controller() {
  trap 'kill -s KILL "${CONTROLLER}" 2>/dev/null' INT TERM
  # Otherwise bash reports that it was killed.
  disown "${CONTROLLER}"
  kill -s TERM "${CONTROLLER}"
  if ! await "${CONTROLLER}" 30; then
    say "    It did not stop within 30 s, killing it"
    kill -s KILL "${CONTROLLER}"
  fi
  trap '' INT TERM
  stop_following
}

# stop_following prints the rest of the log. It reads the same open file as the follower, so
# that no line is printed twice.
stop_following() {
  [[ -n "${FOLLOWER}" ]] || return 0
  kill -s TERM "${FOLLOWER}" 2>/dev/null || true
  wait "${FOLLOWER}" 2>/dev/null || true
  FOLLOWER=""
  cat <&3
}

say_what_stays() {
  say ""
  say "example-foo and the CRD are still in the cluster. To delete them, and with the CRD all Foos:"
  say ""
  say_environment
  say "  kubectl delete -f $(printf '%q' "${EXAMPLE}")"
  say "  kubectl delete -f $(printf '%q' "${CRD}")"
}

# --- The steps --------------------------------------------------------------

make_run_dir() {
  mkdir -p "${ROOT}/.cluster"
  RUN_DIR=$(mktemp -d "${ROOT}/.cluster/run.XXXXXX")
  LOG="${RUN_DIR}/controller.log"
  export KUBECACHEDIR="${RUN_DIR}/kubectl-cache"
}

start_local_cluster() {
  if [[ -x "${BIN}/kubectl" ]] && cluster_running; then
    say "    Using cluster ${CLUSTER_NAME}, which is already running. It is not stopped at the end."
    return 0
  fi
  STOP_CLUSTER=yes
  interruptible "${ROOT}/hack/cluster/up.sh"
}

# check_cluster prints which cluster is about to be changed.
check_cluster() {
  local context server
  say "    KUBECONFIG=${KUBECONFIG}"
  interruptible env -u CLUSTER_VERSION "${ROOT}/hack/cluster/build.sh" kubectl || return
  context=$("${KUBECTL}" config current-context) || return
  server=$("${KUBECTL}" config view --minify -o 'jsonpath={.clusters[0].cluster.server}') || return
  say "    context ${context}, server ${server}"
  interruptible "${KUBECTL}" version --request-timeout=10s
}

apply_crd() {
  LEFT_BEHIND=yes
  interruptible "${KUBECTL}" apply -f "${CRD}" &&
    interruptible "${KUBECTL}" wait --for=jsonpath='{.status.conditions}' -f "${CRD}" --timeout=60s >/dev/null &&
    interruptible "${KUBECTL}" wait --for=condition=Established -f "${CRD}" --timeout=60s
}

build() {
  # go leaves its temporary files behind when it is stopped.
  GOTMPDIR="${RUN_DIR}" compiling build_controller
}

start_controller() {
  # One line for each write to the API server.
  local args=(-v=2)
  # --kubeconfig takes one file, the variable KUBECONFIG a list.
  [[ "${KUBECONFIG}" == *:* ]] || args+=("-kubeconfig=${KUBECONFIG}")
  set -o noglob
  # shellcheck disable=SC2206 # split at blanks, as promised
  args+=(${CONTROLLER_ARGS:-})
  set +o noglob
  spawn "${BIN}/sample-controller" ${args[@]+"${args[@]}"} </dev/null >"${LOG}" 2>&1
  CONTROLLER="${SPAWNED}"
}

# wait_until_ready stops waiting when the controller exits, because then the Foo cannot
# become Ready.
wait_until_ready() {
  local status=0
  interruptible "${KUBECTL}" apply -f "${EXAMPLE}" || return
  spawn "${KUBECTL}" wait --for=condition=Ready -f "${EXAMPLE}" --timeout=120s </dev/null
  CHILD="${SPAWNED}"
  while running "${CHILD}" && running "${CONTROLLER}"; do
    sleep 0.1
  done
  if running "${CONTROLLER}"; then
    end_wait && return
    say "    example-foo did not become Ready. The controller's last lines:"
  else
    stop_child
    wait "${CONTROLLER}" 2>/dev/null || status=$?
    say "    The controller exited with code ${status}. Its last lines:"
  fi
  tail -n 20 "${LOG}" | indent
  return 1
}

end_wait() {
  local status=0
  wait "${CHILD}" || status=$?
  CHILD=""
  return "${status}"
}

show() {
  say ""
  "${KUBECTL}" get foo,deployment,pods
  say ""
  say "Now try from another terminal:"
  say ""
  say_environment
  say "  kubectl get foo --watch"
  say "  kubectl scale foo example-foo --replicas=3"
  say "  kubectl delete deployment example-foo      # it comes back"
  say "  kubectl describe foo example-foo"
  say "  kubectl edit foo example-foo"
  say ""
  if compgen -G "${ROOT}/artifacts/examples/*-crd.yaml" >/dev/null; then
    say "Further controllers start when their CRDs in artifacts/examples are applied."
  fi
  if [[ -n "${STOP_CLUSTER}" ]]; then
    say "Ctrl-C stops the controller and the cluster. The controller's log:"
  else
    say "Ctrl-C stops the controller. Its log:"
  fi
  say ""
}

say_environment() {
  say "  export KUBECONFIG=$(printf '%q' "${KUBECONFIG}") PATH=$(printf '%q' "${BIN}"):\"\${PATH}\""
}

# follow prints the log until the controller exits, which is an error.
follow() {
  local status=0
  exec 3<"${LOG}"
  spawn tail -n +1 -f <&3
  FOLLOWER="${SPAWNED}"
  SHOWN=yes
  wait "${CONTROLLER}" 2>/dev/null || status=$?
  SHOWN=""
  stop_following
  say ""
  say "ERROR: the controller exited with code ${status}."
  exit 1
}

main() {
  cleanup_on_exit
  make_run_dir
  if [[ -n "${LOCAL}" ]]; then
    timed "Starting a local cluster" start_local_cluster
  else
    timed "Using your cluster" check_cluster
  fi
  timed "Applying the CRD" apply_crd
  timed "Building the controller" build
  timed "Starting the controller" start_controller
  timed "Applying example-foo and waiting until it is Ready" wait_until_ready
  show
  follow
}

main "$@"
