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

# Starts a local cluster: a real control plane with simulated nodes and containers. Prints
# only the path of the kubeconfig to stdout.
#
#   CLUSTER_NAME, CLUSTER_DIR   as in lib.sh
#   CLUSTER_NODES        how many nodes, default 2
#   CLUSTER_ARGS         more for `kwokctl create cluster`, split at blanks, such as
#                        --kube-audit-policy FILE
#                        --extra-args kube-apiserver=KEY=VALUE
#   CLUSTER_VERSION      as in build.sh, default the version of the libraries
#   CLUSTER_QPS_LIMITS   on or off: rate limits of the API server and of the components,
#                        default off

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CLUSTER_NODES="${CLUSTER_NODES:-2}"
CLUSTER_ARGS="${CLUSTER_ARGS:-}"
CLUSTER_QPS_LIMITS="${CLUSTER_QPS_LIMITS:-off}"
VERSION_BIN="${BIN}${CLUSTER_VERSION:+/${CLUSTER_VERSION}}"

# Set while the cluster is incomplete, so that cleanup removes it.
UNFINISHED=""
# Set while a complete cluster is started again, so that cleanup keeps its objects.
RESTARTING=""

cleanup() {
  if [[ -n "${UNFINISHED}" ]]; then
    say "Removing the incomplete cluster."
    remove_cluster
  elif [[ -n "${RESTARTING}" ]]; then
    say "Stopping the cluster again. Its objects are kept."
    kill_components
    mv "${CLUSTER_KUBECONFIG}.unready" "${CLUSTER_KUBECONFIG}" 2>/dev/null || true
  fi
  release_lock "${CLUSTER_LOCK}"
}

check_settings() {
  case "${CLUSTER_NODES}" in
    '' | *[!0-9]*) die "CLUSTER_NODES is not a number: ${CLUSTER_NODES}" ;;
  esac
  case "${CLUSTER_QPS_LIMITS}" in
    on | off) ;;
    *) die "CLUSTER_QPS_LIMITS is neither on nor off: ${CLUSTER_QPS_LIMITS}" ;;
  esac
  case "${BIN}" in
    *[#%]*) die "kwokctl takes paths of binaries for URLs, so ${BIN} must not contain '#' or '%'" ;;
  esac
}

# claim_dir marks the directory as one that down.sh may delete, if it is new or empty.
claim_dir() {
  local entry
  if [[ ! -e "${CLUSTER_MARKER}" ]]; then
    for entry in "${CLUSTER_DIR}"/* "${CLUSTER_DIR}"/.[!.]*; do
      if [[ -e "${entry}" && ! -e "${CLUSTER_MARKER}" ]]; then
        die "${CLUSTER_DIR} contains files that up.sh has not created: choose another CLUSTER_DIR."
      fi
    done
    mkdir -p "${CLUSTER_DIR}"
    use_cluster_dir "${CLUSTER_DIR}"
    touch "${CLUSTER_MARKER}"
  fi
}

# attended CMD... runs CMD, and stops it as soon as a component has exited: components are
# not restarted, so CMD would wait in vain.
attended() {
  local status=0
  spawn "$@" </dev/null >>"${CLUSTER_DIR}/kwokctl.log" 2>&1
  CHILD="${SPAWNED}"
  while running "${CHILD}"; do
    if [[ -n "$(dead_components)" ]]; then
      stop_child
      return 1
    fi
    sleep 0.1
  done
  wait "${CHILD}" || status=$?
  CHILD=""
  return "${status}"
}

port_in_use() {
  (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# free_ports prints the first of six free ports in a row. It starts at a random port,
# because clusters that start at the same moment would otherwise find the same ones free.
# The ports are below 30000, outside the range of outgoing connections.
free_ports() {
  local first port
  while :; do
    first=$((10000 + RANDOM % 19990))
    for port in 0 1 2 3 4 5; do
      ! port_in_use $((first + port)) || continue 2
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
  local args=()
  [[ "${CLUSTER_QPS_LIMITS}" == on ]] || args+=(--disable-qps-limits)
  set -o noglob
  # shellcheck disable=SC2206 # split at blanks, as promised
  args+=(${CLUSTER_ARGS})
  set +o noglob
  write_settings
  attended exec_kwokctl create cluster --kubeconfig "" --wait 60s \
    --etcd-binary "${BIN}/etcd" \
    --kube-apiserver-binary "${VERSION_BIN}/kube-apiserver" \
    --kube-controller-manager-binary "${VERSION_BIN}/kube-controller-manager" \
    --kube-scheduler-binary "${VERSION_BIN}/kube-scheduler" \
    --kwok-controller-binary "${BIN}/kwok" \
    ${args[@]+"${args[@]}"} &&
    write_kubeconfig &&
    add_nodes &&
    wait_ready
}

# write_kubeconfig copies the kubeconfig of kwokctl, with the certificates inlined so that it
# can be copied elsewhere, and with the name of the cluster. The file gets its final name
# when the cluster is ready.
write_kubeconfig() {
  local config
  config=$("${BIN}/kubectl" --kubeconfig="${WORKDIR}/kubeconfig.yaml" config view --raw --flatten) || return 1
  (
    umask 077
    echo "${config//kwok-${CONTROL_PLANE}/${CLUSTER_NAME}}" >"${CLUSTER_KUBECONFIG}.unready"
  )
}

exec_kubectl() {
  exec_as_ours kubectl --kubeconfig="${CLUSTER_KUBECONFIG}.unready" "$@"
}

add_nodes() {
  [[ "${CLUSTER_NODES}" -gt 0 ]] || return 0
  attended exec_kwokctl scale node --replicas "${CLUSTER_NODES}" &&
    attended exec_kubectl wait --for=condition=Ready nodes --all --timeout=120s
}

# wait_ready waits for the service account of the namespace default: the API server refuses
# Pods until it exists.
wait_ready() {
  attended exec_kubectl wait --for=create serviceaccount/default \
    --namespace=default --timeout=120s &&
    mv "${CLUSTER_KUBECONFIG}.unready" "${CLUSTER_KUBECONFIG}"
}

# start_again starts a complete cluster that has stopped, for example after a reboot. Its
# objects are still in etcd.
start_again() {
  mv "${CLUSTER_KUBECONFIG}" "${CLUSTER_KUBECONFIG}.unready" &&
    forget_dead &&
    attended exec_kwokctl start cluster --wait 60s &&
    attended exec_kubectl get --raw /readyz &&
    wait_ready
}

log_of() {
  echo "${CLUSTER_DIR}/logs/$1.log"
}

# port_was_taken is true if a component exited because its port was in use.
port_was_taken() {
  local name line
  for name in $(dead_components); do
    while IFS= read -r line; do
      [[ "${line}" != *"address already in use"* ]] || return 0
    done <"$(log_of "${name}")"
  done
  return 1
}

report_failure() {
  local dead name
  dead=$(dead_components)
  for name in ${dead}; do
    say "ERROR: ${name} exited while it started. The last lines of its log:"
    tail -n 20 "$(log_of "${name}")" | indent
  done
  if [[ -z "${dead}" ]]; then
    say "ERROR: the cluster did not become ready. The last lines of kwokctl's log:"
    tail -n 20 "${CLUSTER_DIR}/kwokctl.log" | indent
  fi
}

# create_or_report tries again with other ports if another process has taken one.
create_or_report() {
  local attempt
  ln -sf ".kwok/clusters/${CONTROL_PLANE}/logs" "${CLUSTER_DIR}/"
  for attempt in 1 2 3 4 5; do
    : >"${CLUSTER_DIR}/kwokctl.log"
    ! create || return 0
    port_was_taken && ((attempt < 5)) || break
    say "Another process has taken a port: trying others (attempt ${attempt} of 5 failed)."
    stop_components
  done
  report_failure
  return 1
}

bring_up() {
  local start
  start=$(now)
  if [[ -e "${CLUSTER_KUBECONFIG}" ]]; then
    say "Cluster ${CLUSTER_NAME} has stopped: starting it again with its objects."
    RESTARTING=yes
    if start_again; then
      RESTARTING=""
      say "Cluster ${CLUSTER_NAME} is ready ($(since "${start}"))."
      return 0
    fi
    RESTARTING=""
    say "It does not start ($(dead_components | tr '\n' ' ')exited): deleting it with its objects, and creating a new one."
  else
    say "Starting cluster ${CLUSTER_NAME} in ${CLUSTER_DIR}"
  fi
  UNFINISHED=yes
  stop_components
  create_or_report || die "cluster ${CLUSTER_NAME} did not start"
  UNFINISHED=""
  say "Cluster ${CLUSTER_NAME} is ready ($(since "${start}"))."
}

main() {
  check_settings
  cleanup_on_exit
  interruptible env -u CLUSTER_VERSION "${ROOT}/hack/cluster/build.sh"
  [[ -z "${CLUSTER_VERSION:-}" ]] || interruptible "${ROOT}/hack/cluster/build.sh"
  claim_dir
  take_lock "${CLUSTER_LOCK}"
  claim_dir
  if cluster_running; then
    say "Cluster ${CLUSTER_NAME} is already running."
  else
    bring_up
  fi
  say "Its kubeconfig:"
  echo "${CLUSTER_KUBECONFIG}"
}

main "$@"
