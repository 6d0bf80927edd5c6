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

# Functions of up.sh, down.sh and run.sh for a local cluster. Source it after `set -o
# errexit -o nounset -o pipefail`.
#
#   CLUSTER_NAME   names the cluster and its context, default sample-controller
#   CLUSTER_DIR    holds all its files, default .cluster/NAME in this repository
#
# Files in CLUSTER_DIR:
#
#   kubeconfig    exists once the cluster has been ready
#   logs/         a log for each component, and audit.log if there is a policy
#   kwokctl.log   output of kwokctl
#   .kwok/        the work directory of kwokctl

# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

CLUSTER_NAME="${CLUSTER_NAME:-sample-controller}"
# Each cluster has its own kwokctl work directory, so that kwokctl cannot change another
# cluster of the user or of this repository.
CONTROL_PLANE=control-plane

# use_cluster_dir DIR points all paths at that cluster.
use_cluster_dir() {
  CLUSTER_DIR="$1"
  [[ "${CLUSTER_DIR}" == /* ]] || CLUSTER_DIR="${PWD}/${CLUSTER_DIR}"
  # Without symbolic links: the processes of a cluster are found by this path.
  if [[ -d "${CLUSTER_DIR}" ]]; then
    CLUSTER_DIR=$(cd "${CLUSTER_DIR}" && pwd -P)
  fi
  CLUSTER_KUBECONFIG="${CLUSTER_DIR}/kubeconfig"
  CLUSTER_MARKER="${CLUSTER_DIR}/.made-by-cluster-up"
  # shellcheck disable=SC2034 # for up.sh and down.sh
  CLUSTER_LOCK="${CLUSTER_DIR}/.lock"
  WORKDIR="${CLUSTER_DIR}/.kwok/clusters/${CONTROL_PLANE}"
  # The default cache of kubectl is in the user's home directory.
  export KUBECACHEDIR="${CLUSTER_DIR}/kubectl-cache"
}

case "${CLUSTER_NAME}" in
  [!a-zA-Z0-9]* | *[!a-zA-Z0-9._-]*)
    die "CLUSTER_NAME may have letters, digits, '.', '_' and '-' only: ${CLUSTER_NAME}" ;;
esac
use_cluster_dir "${CLUSTER_DIR:-${ROOT}/.cluster/${CLUSTER_NAME}}"

# component_processes prints "PID NAME" for every process of this cluster, found by its
# command line. The pid files of kwokctl are no proof: they survive a reboot, after which
# another process may have the number.
component_processes() {
  local file pid command prefix="${WORKDIR}/bin/"
  if [[ -r /proc/self/cmdline ]]; then
    for file in /proc/[0-9]*/cmdline; do
      { IFS= read -r -d '' command <"${file}"; } 2>/dev/null || continue
      [[ "${command}" == "${prefix}"* ]] || continue
      pid="${file#/proc/}"
      echo "${pid%/cmdline} ${command#"${prefix}"}"
    done
  else
    # shellcheck disable=SC2009 # pgrep is not on every machine
    ps -axww -o pid= -o command= | while read -r pid command; do
      [[ "${command}" == "${prefix}"* ]] || continue
      command="${command#"${prefix}"}"
      echo "${pid} ${command%% *}"
    done
  fi
}

# dead_components prints the names of the components that kwokctl has started and that have
# exited since. It reads the pid files first: in the other order a component that starts
# in between would look dead.
dead_components() {
  local file pid started="" alive
  for file in "${WORKDIR}"/pids/*.pid; do
    pid=""
    { read -r pid <"${file}"; } 2>/dev/null || true
    # An empty file is one that kwokctl is writing.
    [[ -z "${pid}" ]] || started+="${pid} ${file##*/}"$'\n'
  done
  [[ -n "${started}" ]] || return 0
  alive=" $(component_processes | tr '\n' ' ')"
  while read -r pid file; do
    [[ "${alive}" == *" ${pid} "* ]] || echo "${file%.pid}"
  done <<<"${started%$'\n'}"
}

# forget_dead removes the pid files of dead components. kwokctl would kill a process that
# has got the same number since.
forget_dead() {
  local name
  for name in $(dead_components); do
    rm -f "${WORKDIR}/pids/${name}.pid"
  done
}

# exec_as_ours BINARY ARGS... replaces this subshell by the program, under a name by which
# component_processes finds it even after this script was killed.
exec_as_ours() {
  exec -a "${WORKDIR}/bin/$1" "${BIN}/$1" "${@:2}"
}

# exec_kwokctl ARGS... replaces this subshell by kwokctl for this cluster. Its work directory
# is .kwok in HOME, because KWOK_WORKDIR is cut at the first blank. It unsets variables of
# the caller that kwokctl and etcd take for settings. kwokctl downloads kubectl unless it
# is in PATH.
exec_kwokctl() {
  local variable
  for variable in ${!KWOK_@} ${!ETCD_@} KUBECONFIG; do
    unset "${variable}"
  done
  export HOME="${CLUSTER_DIR}" PATH="${BIN}:${PATH}"
  exec_as_ours kwokctl --name "${CONTROL_PLANE}" "$@"
}

# kill_processes PATTERN kills the processes of the cluster whose names match.
kill_processes() {
  local pid name
  component_processes | while read -r pid name; do
    # shellcheck disable=SC2053 # it is a pattern
    [[ "${name}" != $1 ]] || kill -s KILL "${pid}" 2>/dev/null || true
  done
}

# stop_components stops every process of the cluster, also those without a pid file, and
# waits until they are gone.
stop_components() {
  # A kwokctl whose up.sh was killed would go on starting components.
  kill_processes kwokctl
  forget_dead
  if [[ -x "${BIN}/kwokctl" && -e "${WORKDIR}/kwok.yaml" ]]; then
    (exec_kwokctl delete cluster --kubeconfig "${CLUSTER_KUBECONFIG}") \
      >>"${CLUSTER_DIR}/kwokctl.log" 2>&1 || true
  fi
  kill_components
}

# kill_components kills every process of the cluster, and leaves its files.
kill_components() {
  local tries=300
  kill_processes kwokctl
  while [[ -n "$(component_processes)" ]]; do
    kill_processes '*'
    ((tries-- > 0)) || die "still running after SIGKILL: $(component_processes)"
    sleep 0.1
  done
}

# remove_cluster stops the processes of the cluster and deletes the directory if up.sh
# created it.
remove_cluster() {
  stop_components
  [[ -e "${CLUSTER_MARKER}" ]] || return 0
  rm -rf "${CLUSTER_DIR}"
  rmdir "${ROOT}/.cluster" 2>/dev/null || true
}

# cluster_running is true if the cluster was ready once, all its processes run and the API
# server is ready.
cluster_running() {
  [[ -e "${CLUSTER_KUBECONFIG}" && -n "$(component_processes)" && -z "$(dead_components)" ]] &&
    "${BIN}/kubectl" --kubeconfig="${CLUSTER_KUBECONFIG}" get --raw /readyz \
      --request-timeout=10s >/dev/null 2>&1
}
