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

# Local clusters: a real control plane with simulated nodes and containers.
#
#   hack/cluster.sh up                  starts one, and prints the path of its kubeconfig to stdout
#   hack/cluster.sh down                stops it and deletes its files
#   hack/cluster.sh running             prints that path if it runs, and fails if not
#   hack/cluster.sh build [BINARY...]   builds control plane and tools into bin/, with the versions that
#                                       hack/cluster/go.mod pins, unless they are up to date
#
#   CLUSTER_NAME      names the cluster and its context, default sample-controller
#   CLUSTER_DIR       holds all its files, default .cluster/NAME: kubeconfig, which exists once the
#                     cluster has been ready, logs/, with audit.log if there is a policy,
#                     kwokctl.log, and .kwok/, the work directory of kwokctl
#   CLUSTER_NODES     how many nodes, default 2
#   CLUSTER_ARGS      more for `kwokctl create cluster`, split at blanks
#   CLUSTER_VERSION   another minor version of Kubernetes, one of those in hack/cluster/versions # +drop:versions

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CLUSTER_NAME="${CLUSTER_NAME:-sample-controller}"
CLUSTER_NODES="${CLUSTER_NODES:-2}"
CLUSTER_VERSION="${CLUSTER_VERSION:-}"
BUILD="${BIN}/.build"
# Each cluster has its own kwokctl work directory, so that kwokctl cannot change another
# cluster of the user or of this repository.
CONTROL_PLANE=control-plane
# Set while up changes the cluster, and while build writes files.
STARTING=""
BUILDING=""

cleanup() {
  if [[ -n "${STARTING}" && -e "${CLUSTER_KUBECONFIG}" ]]; then
    say "Stopping the cluster again. Its objects are kept."
    kill_components
  elif [[ -n "${STARTING}" ]]; then
    say "Removing the incomplete cluster."
    remove_cluster
  fi
  release_lock "${CLUSTER_LOCK}"
  end_build
}

end_build() {
  [[ -n "${BUILDING}" ]] || return 0
  rm -rf "${BUILD}"
  release_lock "${BUILD}.lock"
  BUILDING=""
}

use_cluster() {
  CLUSTER_DIR="$1"
  [[ "${CLUSTER_DIR}" == /* ]] || CLUSTER_DIR="${PWD}/${CLUSTER_DIR}"
  # Without symbolic links: the processes of a cluster are found by this path.
  [[ ! -d "${CLUSTER_DIR}" ]] || CLUSTER_DIR=$(cd "${CLUSTER_DIR}" && pwd -P)
  CLUSTER_KUBECONFIG="${CLUSTER_DIR}/kubeconfig"
  CLUSTER_MARKER="${CLUSTER_DIR}/.made-by-cluster-up"
  CLUSTER_LOCK="${CLUSTER_DIR}/.lock"
  WORKDIR="${CLUSTER_DIR}/.kwok/clusters/${CONTROL_PLANE}"
  # The default cache of kubectl is in the user's home directory.
  export KUBECACHEDIR="${CLUSTER_DIR}/kubectl-cache"
}

# components prints "PID NAME" for every process of this cluster, found by its command line.
# The pid files of kwokctl are no proof: they survive a reboot, after which another process
# may have the number.
components() {
  local pid command
  processes | while read -r pid command; do
    [[ "${command}" == "${WORKDIR}/bin/"* ]] || continue
    command="${command#"${WORKDIR}/bin/"}"
    echo "${pid} ${command%% *}"
  done
}

# dead_components prints the names of the components that kwokctl has started and that have
# exited since. It reads the pid files first: in the other order a component that starts
# in between would look dead. An empty file is one that kwokctl is writing. On Linux a process that
# has just been started is known by its program only: it has no command line yet.
dead_components() {
  local started alive file pid name
  started=$(cd "${WORKDIR}/pids" 2>/dev/null && grep -H . -- *.pid 2>/dev/null) || return 0
  alive=" $(components | tr '\n' ' ')"
  for file in ${started}; do
    pid="${file#*:}" name="${file%.pid:*}"
    [[ "${alive}" == *" ${pid} "* || "/proc/${pid}/exe" -ef "${WORKDIR}/bin/${name}" ]] || echo "${name}"
  done
}

all_alive() {
  [[ -z "$(dead_components)" ]]
}

# is_running is true if the cluster was ready once, all its processes run and the API server is ready.
is_running() {
  [[ -e "${CLUSTER_KUBECONFIG}" && -n "$(components)" ]] && all_alive &&
    "${BIN}/kubectl" --kubeconfig="${CLUSTER_KUBECONFIG}" get --raw /readyz --request-timeout=10s >/dev/null 2>&1
}

# kill_components kills every process of the cluster, and leaves its files. A kwokctl whose script
# was killed may start components meanwhile.
kill_components() {
  local tries=300 pid
  while [[ -n "$(components)" ]]; do
    ((tries-- > 0)) || die "still running after SIGKILL: $(components)"
    components | while read -r pid _; do
      kill -s KILL "${pid}" 2>/dev/null || true
    done
    sleep 0.1
  done
  # kwokctl would kill a process that gets the same number.
  rm -f "${WORKDIR}"/pids/*.pid
}

# remove_cluster also deletes the directory, if up has made it.
remove_cluster() {
  kill_components
  [[ ! -e "${CLUSTER_MARKER}" ]] || rm -rf "${CLUSTER_DIR}"
  rmdir "${ROOT}/.cluster" 2>/dev/null || true
}

# attended BINARY ARGS... runs it, and stops it as soon as a component has exited: components are
# not restarted, so it would wait in vain.
attended() {
  while_true all_alive exec_as_ours "$@"
}

# exec_as_ours BINARY ARGS... replaces this subshell by the program, under a name by which components
# finds it even after this script was killed. The work directory of kwokctl is .kwok in HOME,
# because KWOK_WORKDIR is cut at the first blank. Variables of the caller could be settings of kwokctl
# and etcd. kwokctl downloads kubectl unless it is in PATH.
exec_as_ours() {
  local variable
  for variable in ${!KWOK_@} ${!ETCD_@}; do
    unset "${variable}"
  done
  export HOME="${CLUSTER_DIR}" PATH="${BIN}:${PATH}" KUBECONFIG="${WORKDIR}/kubeconfig.yaml"
  exec -a "${WORKDIR}/bin/$1" "${BIN}/$1" "${@:2}" >>"${CLUSTER_DIR}/kwokctl.log" 2>&1
}

# claim_dir marks the directory as one that down may delete, if it is new or empty.
claim_dir() {
  [[ ! -e "${CLUSTER_MARKER}" ]] || return 0
  [[ -z "$(ls -A "${CLUSTER_DIR}" 2>/dev/null | grep -vx .lock)" || -e "${CLUSTER_MARKER}" ]] ||
    die "CLUSTER_DIR: ${CLUSTER_DIR} contains files that cluster.sh has not made: choose another directory"
  mkdir -p "${CLUSTER_DIR}"
  use_cluster "${CLUSTER_DIR}"
  touch "${CLUSTER_MARKER}"
}

# free_ports prints the first of six free ports in a row. It starts at a random port,
# because clusters that start at the same moment would otherwise find the same ones free.
# The ports are below 30000, outside the range of outgoing connections.
free_ports() {
  local first port
  while :; do
    first=$((10000 + RANDOM % 19990))
    for port in 0 1 2 3 4 5; do
      ! (: <>"/dev/tcp/127.0.0.1/$((first + port))") 2>/dev/null || continue 2
    done
    echo "${first}"
    return
  done
}

# write_settings writes the settings that kwokctl has no flags for. All components listen on
# loopback: by default etcd would listen on the network without authentication. The
# advertised address is loopback too, because the API server would otherwise need a default
# route, which a machine without a network does not have.
write_settings() {
  local first
  first=$(free_ports)
  mkdir -p "${CLUSTER_DIR}/.kwok"
  cat >"${CLUSTER_DIR}/.kwok/kwok.yaml" <<SETTINGS
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokctlConfiguration
options:
  runtime: binary
  bindAddress: 127.0.0.1
  kubeApiserverPort: $((first))
  etcdPort: $((first + 1))
  etcdPeerPort: $((first + 2))
  kubeControllerManagerPort: $((first + 3))
  kubeSchedulerPort: $((first + 4))
  kwokControllerPort: $((first + 5))
componentsPatches:
- name: kube-apiserver
  extraArgs:
  - {key: advertise-address, value: 127.0.0.1}
  - {key: endpoint-reconciler-type, value: none}
SETTINGS
}

create() {
  local bin="${BIN}/${CLUSTER_VERSION}" args=()
  read -r -d '' -a args <<<"${CLUSTER_ARGS:-}" || true
  rm -rf "${CLUSTER_DIR}/.kwok" "${CLUSTER_DIR}/kwokctl.log"
  write_settings
  attended kwokctl --name "${CONTROL_PLANE}" create cluster --kubeconfig "" --wait 60s --disable-qps-limits \
    --etcd-binary "${BIN}/etcd" --kwok-controller-binary "${BIN}/kwok" \
    --kube-apiserver-binary "${bin}/kube-apiserver" \
    --kube-controller-manager-binary "${bin}/kube-controller-manager" \
    --kube-scheduler-binary "${bin}/kube-scheduler" ${args[@]+"${args[@]}"} &&
    { ((CLUSTER_NODES == 0)) || add_nodes; } && await_ready && write_kubeconfig
}

add_nodes() {
  attended kwokctl --name "${CONTROL_PLANE}" scale node --replicas "${CLUSTER_NODES}" &&
    attended kubectl wait --for=condition=Ready nodes --all --timeout=120s
}

# await_ready waits for the service account of the namespace default: the API server refuses
# Pods until it exists.
await_ready() {
  attended kubectl wait --for=create serviceaccount/default --namespace=default --timeout=120s
}

# write_kubeconfig copies the kubeconfig of kwokctl, with the certificates inlined so that it
# can be copied elsewhere, and with the name of the cluster.
write_kubeconfig() {
  (
    umask 077
    "${BIN}/kubectl" --kubeconfig="${WORKDIR}/kubeconfig.yaml" config view --raw --flatten |
      sed "s/kwok-${CONTROL_PLANE}/${CLUSTER_NAME}/g" >"${CLUSTER_KUBECONFIG}.new"
  ) && mv "${CLUSTER_KUBECONFIG}.new" "${CLUSTER_KUBECONFIG}"
}

# start_again starts a complete cluster that has stopped, for example after a reboot. Its objects are
# still in etcd.
start_again() {
  [[ -e "${CLUSTER_KUBECONFIG}" ]] || return 1
  say "Cluster ${CLUSTER_NAME} has stopped: starting it again with its objects."
  attended kwokctl --name "${CONTROL_PLANE}" start cluster --wait 60s &&
    attended kubectl get --raw /readyz && await_ready && return
  say "It does not start: deleting it with its objects, and creating a new one."
  kill_components
  rm -f "${CLUSTER_KUBECONFIG}"
  return 1
}

# start creates the cluster, again with other ports if another process has taken one.
start() {
  local attempt name
  say "Starting cluster ${CLUSTER_NAME} in ${CLUSTER_DIR}"
  ln -sf ".kwok/clusters/${CONTROL_PLANE}/logs" "${CLUSTER_DIR}/"
  for attempt in 1 2 3 4 5; do
    ! create || return 0
    grep -qs "address already in use" "${WORKDIR}"/logs/*.log || break
    say "Another process has taken a port: trying others (attempt ${attempt} of 5 failed)."
    kill_components
  done
  for name in $(dead_components); do
    say "ERROR: ${name} exited while it started. The last lines of its log:"
    tail -n 20 "${WORKDIR}/logs/${name}.log" | indent
  done
  tail -n 20 "${CLUSTER_DIR}/kwokctl.log" | indent
  die "cluster ${CLUSTER_NAME} did not start; these are the last lines of kwokctl's log"
}

up() {
  local begun
  [[ "${CLUSTER_NODES}" =~ ^[0-9]+$ ]] || die "CLUSTER_NODES is not a number: ${CLUSTER_NODES}"
  [[ "${BIN}" != *[#%]* ]] || die "kwokctl takes paths of binaries for URLs, so ${BIN} must not contain '#' or '%'"
  build "" etcd kube-{apiserver,controller-manager,scheduler} kubectl kwok kwokctl
  [[ -z "${CLUSTER_VERSION}" ]] || build "${CLUSTER_VERSION}" kube-{apiserver,controller-manager,scheduler}
  claim_dir
  take_lock "${CLUSTER_LOCK}"
  # A cluster.sh down may have deleted it meanwhile.
  claim_dir
  if is_running; then
    say "Cluster ${CLUSTER_NAME} is already running."
  else
    begun="${SECONDS}"
    STARTING=yes
    kill_components
    start_again || start
    STARTING=""
    say "Cluster ${CLUSTER_NAME} is ready ($(since "${begun}"))."
  fi
  say "Its kubeconfig:"
  echo "${CLUSTER_KUBECONFIG}"
}

down() {
  local begun starter
  begun="${SECONDS}"
  starter=$(lock_owner "${CLUSTER_LOCK}")
  if [[ -n "${starter}" ]]; then
    say "Stopping process ${starter}, which is still starting the cluster."
    kill -s TERM "${starter}" 2>/dev/null || true
    await "${starter}" 60 || die "process ${starter} does not exit"
  fi
  if [[ -e "${CLUSTER_MARKER}" || -n "$(components)" ]]; then
    remove_cluster
    say "Removed the cluster in ${CLUSTER_DIR} ($(since "${begun}"))."
  elif [[ -d "${CLUSTER_DIR}" && "${CLUSTER_DIR}" != "${ROOT}/.cluster/"* ]]; then
    die "CLUSTER_DIR: ${CLUSTER_DIR} was not made by cluster.sh: nothing deleted"
  else
    say "There is no cluster in ${CLUSTER_DIR}: nothing to do."
  fi
}

# ldflags MODULE sets the version that clients ask the API server for.
ldflags() {
  local version major minor package flags="-s -w"
  version=$(go -C "$1" list -m -f '{{.Version}}' k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${version#v}"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X ${package}.gitVersion=${version} -X ${package}.gitMajor=${major} -X ${package}.gitMinor=${minor}"
  done
  echo "${flags}"
}

# build VERSION BINARY... builds those that do not have everything that they depend on in their
# stamp: as a hash, which git computes, because every machine with this repository has git.
build() {
  local module="${ROOT}/hack/cluster${1:+/versions/$1}" bin="${BIN}${1:+/$1}" want name package flags="" begun
  [[ -e "${module}/go.mod" ]] || die "CLUSTER_VERSION: there is no ${module}/go.mod"
  # A fork, whose module has another path, builds the same.
  want=$({ go -C "${module}" version && grep -hv '^module ' "${module}"/go.{mod,sum} && declare -f ldflags; } | git hash-object --stdin)
  take_lock "${BUILD}.lock"
  BUILDING=yes
  for name in "${@:2}"; do
    [[ ! -x "${bin}/${name}" || "$(cat "${bin}/.stamps/${name}" 2>/dev/null)" != "${want}" ]] || continue
    if [[ -z "${flags}" ]]; then
      flags=$(ldflags "${module}")
      say "Building into ${bin#"${ROOT}/"}/, from ${module#"${ROOT}/"}/go.mod"
      say "The first build downloads and compiles everything, which takes up to 10 minutes on 2 cores."
      # The build may be one of a script that was killed, whose compilers may still be running.
      rm -rf "${BUILD}" || true
      mkdir -p "${BUILD}/tmp" "${bin}/.stamps"
    fi
    begun="${SECONDS}"
    package=$(sed -nE "/^tool \(/,/^\)/s|^[[:space:]](.*/${name}(/server/v3)?)$|\1|p" "${module}/go.mod")
    # The control plane runs here, also if the caller builds for another platform. go leaves its temporary
    # files behind when it is stopped.
    GOOS="" GOARCH="" GOTMPDIR="${BUILD}/tmp" compiling go -C "${module}" build \
      -o "${BUILD}/${name}" -ldflags "${flags}" "${package}" || die "${name} does not build"
    # A process never starts a half-written file.
    mv -f "${BUILD}/${name}" "${bin}/${name}"
    echo "${want}" >"${bin}/.stamps/${name}"
    say "    ${name} ($(since "${begun}"))"
  done
  end_build
}

[[ "${CLUSTER_NAME}" =~ ^[a-zA-Z0-9][a-zA-Z0-9._-]*$ ]] ||
  die "CLUSTER_NAME may have letters, digits, '.', '_' and '-' only: ${CLUSTER_NAME}"
use_cluster "${CLUSTER_DIR:-${ROOT}/.cluster/${CLUSTER_NAME}}"
cleanup_on_exit
case "$*" in
  up) up ;;
  down) down ;;
  running) is_running && echo "${CLUSTER_KUBECONFIG}" ;;
  build\ *) build "" "${@:2}" ;;
  *) die "usage: $0 up | down | running | build BINARY..." ;;
esac
