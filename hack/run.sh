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
#   CLUSTER_NAME, CLUSTER_DIR, ...   for the local cluster, as in hack/cluster.sh
#   CONTROLLER_ARGS   more flags for the controller, split at blanks, such as -v=4

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# One stream keeps the order of lines when the output goes to a file.
exec 2>&1

CRD="${ROOT}/artifacts/examples/crd.yaml"
EXAMPLE="${ROOT}/artifacts/examples/example-foo.yaml"
KUBECTL="${BIN}/kubectl"
CONTROLLER=""
FOLLOWER=""
# What cleanup has to undo or to mention.
STOP_CLUSTER=""
LEFT_BEHIND=""

# timed TITLE CMD... announces CMD and says how long it took. CMD runs without errexit.
timed() {
  local start status=0
  say "==> $1"
  start="${SECONDS}"
  "${@:2}" || status=$?
  if [[ "${status}" == 0 ]]; then
    say "    done ($(since "${start}"))"
  else
    say "    FAILED after $(since "${start}")"
  fi
  return "${status}"
}

cleanup() {
  # The controller first: to release its lease it needs the API server.
  if [[ -n "${CONTROLLER}" ]] && running "${CONTROLLER}"; then
    say ""
    timed "Stopping the controller" stop_controller
  fi
  stop_following
  if [[ -n "${STOP_CLUSTER}" ]]; then
    timed "Stopping the local cluster" interruptible "${ROOT}/hack/cluster.sh" down
  elif [[ -n "${LEFT_BEHIND}" ]]; then
    cat <<TEXT

example-foo and the CRD are still in the cluster. To delete them, and with the CRD all Foos:

$(environment)
  kubectl delete -f $(printf '%q' "${EXAMPLE}")
  kubectl delete -f $(printf '%q' "${CRD}")
TEXT
  fi
}

# stop_controller stops the controller; a second Ctrl-C kills it.
stop_controller() {
  trap 'kill -s KILL "${CONTROLLER}" 2>/dev/null' INT TERM
  stop "${CONTROLLER}" 30
  trap '' INT TERM
  stop_following
}

# stop_following prints the rest of the log. It reads the same open file as the follower, so
# that no line is printed twice.
stop_following() {
  [[ -n "${FOLLOWER}" ]] || return 0
  stop "${FOLLOWER}" 5
  FOLLOWER=""
  cat <&3
}

start_cluster() {
  if KUBECONFIG=$("${ROOT}/hack/cluster.sh" running); then
    say "    Using cluster ${CLUSTER_NAME:-sample-controller}, which is already running. It is not stopped at the end."
    return
  fi
  STOP_CLUSTER=yes
  interruptible "${ROOT}/hack/cluster.sh" up >"${WORK}/kubeconfig" || return
  KUBECONFIG=$(<"${WORK}/kubeconfig")
  say "${KUBECONFIG}"
}

# check_cluster prints which cluster is about to be changed.
check_cluster() {
  local context server
  # The user may copy it to a terminal with another working directory. KUBECONFIG may list several
  # files, which both kubectl and the controller merge.
  [[ "${KUBECONFIG}" == /* || "${KUBECONFIG}" == *:* ]] || KUBECONFIG="${PWD}/${KUBECONFIG}"
  say "    KUBECONFIG=${KUBECONFIG}"
  interruptible "${ROOT}/hack/cluster.sh" build kubectl || return
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

start_controller() {
  # One line for each write to the API server.
  local args=(-v=2) more=()
  # --kubeconfig takes one file, the variable KUBECONFIG a list.
  [[ "${KUBECONFIG}" == *:* ]] || args+=("-kubeconfig=${KUBECONFIG}")
  read -r -d '' -a more <<<"${CONTROLLER_ARGS:-}" || true
  spawn "${BIN}/sample-controller" "${args[@]}" ${more[@]+"${more[@]}"} </dev/null >"${LOG}" 2>&1
  CONTROLLER="${SPAWNED}"
}

controller_runs() {
  running "${CONTROLLER}"
}

# await_foo stops waiting when the controller exits, because then the Foo cannot become Ready.
await_foo() {
  local status=0
  interruptible "${KUBECTL}" apply -f "${EXAMPLE}" || return
  ! while_true controller_runs "${KUBECTL}" wait --for=condition=Ready -f "${EXAMPLE}" --timeout=120s || return 0
  if controller_runs; then
    say "    example-foo did not become Ready. The controller's last lines:"
  else
    wait "${CONTROLLER}" 2>/dev/null || status=$?
    say "    The controller exited with code ${status}. Its last lines:"
  fi
  tail -n 20 "${LOG}" | indent
  return 1
}

show() {
  local what="the controller. Its"
  [[ -z "${STOP_CLUSTER}" ]] || what="the controller and the cluster. The controller's"
  say ""
  "${KUBECTL}" get foo,deployment,pods
  cat <<TEXT

Now try from another terminal:

$(environment)
  kubectl get foo --watch
  kubectl scale foo example-foo --replicas=3
  kubectl delete deployment example-foo      # it comes back
  kubectl describe foo example-foo
  kubectl edit foo example-foo

TEXT
  ! compgen -G "${ROOT}/artifacts/examples/*-crd.yaml" >/dev/null ||
    say "Further controllers start when their CRDs in artifacts/examples are applied."
  say "Ctrl-C stops ${what} log:"$'\n'
}

environment() {
  echo "  export KUBECONFIG=$(printf '%q' "${KUBECONFIG}") PATH=$(printf '%q' "${BIN}"):\"\${PATH}\""
}

# follow prints the log until the controller exits, which is an error.
follow() {
  local status=0
  exec 3<"${LOG}"
  spawn tail -n +1 -f <&3
  FOLLOWER="${SPAWNED}"
  # Ctrl-C while the log is shown is the normal end.
  trap 'leave 0' HUP INT TERM
  wait "${CONTROLLER}" 2>/dev/null || status=$?
  stop_following
  say ""
  die "the controller exited with code ${status}."
}

make_work run
LOG="${WORK}/logs/controller.log"
if [[ -z "${KUBECONFIG:-}" ]]; then
  timed "Starting a local cluster" start_cluster
else
  timed "Using your cluster" check_cluster
fi
export KUBECONFIG KUBECACHEDIR="${WORK}/kubectl-cache"
timed "Applying the CRD" apply_crd
timed "Building the controller" compiling build_static "${BIN}/sample-controller"
timed "Starting the controller" start_controller
timed "Applying example-foo and waiting until it is Ready" await_foo
show
follow
