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

# Starts a control plane and two nodes, and runs the tests. hack/e2e-node.sh runs it as the first
# process of its own namespaces: when it ends, the kernel ends all others, and removes mounts and
# interfaces.
#
#   hack/node/start.sh [ARGS OF A TEST BINARY...]
#
#   WORK         the directory that hack/e2e-node.sh has made
#   NODE_CGROUP  the cgroup of all Pods, below that of the machine
#   NODE_SHELL   as in hack/e2e-node.sh

set -o errexit -o nounset -o pipefail

# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# The API server and node1, and node2.
ADDRESSES=(172.30.0.2 172.30.0.3)
KUBERNETES_SERVICE=10.0.0.1
REGISTRY=127.0.0.1:5000
PKI="${WORK}/cluster/.kwok/clusters/control-plane/pki"
LOGS="${WORK}/logs"

trap 'exit 130' INT
trap 'exit 143' TERM

# until_true WHAT CMD... waits up to a minute until CMD succeeds.
until_true() {
  local what="$1" end=$((SECONDS + 60))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || die "${what}: not within a minute; see the end of the logs: $(tail -qn 3 "${LOGS}"/*.log)"
    sleep 0.1
  done
}

# daemon NAME CMD... starts a process whose output is in a log.
daemon() {
  setsid "${@:2}" >>"${LOGS}/$1.log" 2>&1 &
}

set_up_network() {
  local address
  hostname node1
  ip link set lo up
  # The machine may have no dummy device.
  ip link add node0 type veth peer name node0p
  ip link set node0 up
  ip link set node0p up
  for address in "${ADDRESSES[@]}"; do
    ip address add "${address}/24" dev node0
  done
  ip route add default dev node0
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# set_up_mounts hides what the kubelet and the plugins write from the machine.
set_up_mounts() {
  local setting dir file
  for dir in etc var; do
    mkdir -p "${WORK}/overlay/${dir}" "${WORK}/overlay/${dir}-work"
    mount -t overlay -o "lowerdir=/${dir},upperdir=${WORK}/overlay/${dir},workdir=${WORK}/overlay/${dir}-work" none "/${dir}"
  done
  mount -t tmpfs -o mode=755 none /run
  mount --make-rshared /
  # The kubelet would set these of the whole machine. Files in their places take the values.
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file="${WORK}/overlay/$(tr / . <<<"${setting%=*}")"
    echo "${setting#*=}" >"${file}"
    mount --bind "${file}" "/proc/sys/${setting%=*}"
  done
}

# start_control_plane has no simulated nodes, and asks the kubelets for logs.
start_control_plane() {
  local argument
  export CLUSTER_NAME=node CLUSTER_DIR="${WORK}/cluster" CLUSTER_NODES=0 CLUSTER_QPS_LIMITS=on
  # up.sh splits CLUSTER_ARGS at blanks, and the path of this repository may contain one.
  cp "${ROOT}/test/e2e/audit-policy.yaml" "${WORK}/tmp/"
  CLUSTER_ARGS="--disable kwok-controller --kube-audit-policy ${WORK}/tmp/audit-policy.yaml"
  # kwokctl 0.8.0 panics unless the first flag of the n-th component is the n-th of all. That of
  # kube-controller-manager has its default.
  for argument in kube-apiserver=bind-address=0.0.0.0 kube-controller-manager=node-monitor-grace-period=50s \
    "kube-apiserver=advertise-address=${ADDRESSES[0]}" kube-apiserver=endpoint-reconciler-type=lease \
    kube-apiserver=kubelet-preferred-address-types=InternalIP \
    "kube-apiserver=kubelet-client-certificate=${PKI}/admin.crt" "kube-apiserver=kubelet-client-key=${PKI}/admin.key"; do
    CLUSTER_ARGS+=" --extra-args ${argument}"
  done
  export CLUSTER_ARGS
  # The API server's certificate has all addresses of the machine.
  ip address add "${KUBERNETES_SERVICE}/32" dev node0
  "${ROOT}/hack/cluster/up.sh" >/dev/null
  ip address del "${KUBERNETES_SERVICE}/32" dev node0
  cp "${CLUSTER_DIR}/kubeconfig" "${WORK}/home/.kube/config"
  export KUBECONFIG="${WORK}/home/.kube/config"
  SERVER=$("${BIN}/kubectl" config view --minify --output='jsonpath={.clusters[0].cluster.server}')
}

# kubeconfig NAME SUBJECT writes NAME.kubeconfig with a certificate for that user.
kubeconfig() {
  local file="${WORK}/pki/$1"
  openssl req -newkey rsa:2048 -nodes -keyout "${file}.key" -subj "$2" -out "${file}.csr" 2>/dev/null
  openssl x509 -req -in "${file}.csr" -CA "${PKI}/ca.crt" -CAkey "${PKI}/ca.key" -CAserial "${WORK}/pki/ca.srl" -CAcreateserial \
    -days 3 -extfile <(echo extendedKeyUsage=clientAuth) -out "${file}.crt" 2>/dev/null
  cat >"${WORK}/pki/$1.kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters:
- name: node
  cluster: {server: "${SERVER}", certificate-authority: ${PKI}/ca.crt}
users:
- name: $1
  user: {client-certificate: ${file}.crt, client-key: ${file}.key}
contexts:
- name: node
  context: {cluster: node, user: $1}
current-context: node
CONFIG
}

# start_registry serves the images, and containerd takes each registry's from there.
start_registry() {
  mkdir -p /etc/containerd/certs.d/_default "${WORK}/registry"
  printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "${REGISTRY}" "${REGISTRY}" >/etc/containerd/certs.d/_default/hosts.toml
  daemon registry "${BIN}/crane" registry serve --address "${REGISTRY}" --disk "${WORK}/registry"
  until_true "the registry answers" "${BIN}/crane" catalog --insecure "${REGISTRY}"
  image nginx library/nginx:latest --cmd nginx,-g,'daemon off;' --env PATH=/usr/sbin:/usr/bin:/bin
  # +drop:memcached
  image memcached library/memcached:1.6-alpine --cmd memcached --env PATH=/usr/bin:/bin --user memcache
  # +drop:end
  image busybox library/busybox:latest --cmd sh --env PATH=/bin
  # A Pod's first container, which holds its namespaces.
  image busybox library/pause:node --entrypoint /bin/tail,-f,/dev/null
  for tag in dev v2; do
    image sample-controller "sample-controller:${tag}" --entrypoint /sample-controller --user 65532:65532
  done
  image former sample-controller:former --entrypoint /sample-controller --user 65532:65532
  "${BIN}/crane" push --insecure "${WORK}/layout" "${REGISTRY}/sample-controller:${NODE_RELEASE}" >/dev/null 2>"${LOGS}/release.log" ||
    die "the image of the release: $(tail -n 3 "${LOGS}/release.log")"
}

# image LAYER NAME FLAGS... pushes an image of that layer, with the flags of crane mutate.
image() {
  {
    "${BIN}/crane" append --insecure --new_layer "${WORK}/images/$1.tar" --new_tag "${REGISTRY}/$2" &&
      "${BIN}/crane" mutate --insecure --set-platform "linux/$(go env GOARCH)" --tag "${REGISTRY}/$2" "${@:3}" "${REGISTRY}/$2"
  } >>"${LOGS}/images.log" 2>&1 || die "image $2: $(tail -n 3 "${LOGS}/images.log")"
}

# start_runtime NODE SUBNET starts containerd for that node, with a bridge of its own.
start_runtime() {
  local conf="/etc/cni/$1"
  mkdir -p "${conf}" "/run/$1"
  cat >"${conf}/10-bridge.conflist" <<CNI
{"cniVersion": "0.4.0", "name": "$1", "plugins": [{"type": "bridge", "bridge": "$1-pods", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$2"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
CNI
  cat >"/etc/containerd/$1.toml" <<CONFIG
version = 2
root = "${WORK}/$1/containerd"
state = "/run/$1"
oom_score = 0
[grpc]
  address = "/run/$1/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "${WORK}/$1/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "pause:node"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "${conf}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
CONFIG
  daemon "$1-containerd" containerd --config "/etc/containerd/$1.toml"
  # The kubelet ends if the socket exists but CRI does not answer yet.
  until_true "containerd of $1 has started" grep 'containerd successfully booted' "${LOGS}/$1-containerd.log"
}

# start_kubelet NODE ADDRESS PORT starts a kubelet, with a health endpoint on the next port.
start_kubelet() {
  local dir="${WORK}/$1"
  mkdir -p "${dir}"/{kubelet,logs,plugins}
  kubeconfig "$1" "/O=system:nodes/CN=system:node:$1"
  echo 'nameserver 127.0.0.1' >"${dir}/resolv.conf"
  cat >"${dir}/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /${NODE_CGROUP}/$1
failSwapOn: false
# The machine may not allow to lower it.
oomScoreAdj: 0
address: $2
port: $3
healthzPort: $(($3 + 1))
containerRuntimeEndpoint: unix:///run/$1/containerd.sock
podLogsDir: ${dir}/logs
volumePluginDir: ${dir}/plugins
resolvConf: ${dir}/resolv.conf
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi}
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: ${PKI}/ca.crt}}
authorization: {mode: Webhook}
CONFIG
  for hierarchy in $(cut -d ' ' -f 2,3 /proc/mounts | sed -n 's/ cgroup2*$//p'); do
    [[ ! -d "${hierarchy}/${NODE_CGROUP}" ]] || mkdir -p "${hierarchy}/${NODE_CGROUP}/$1"
  done
  daemon "$1-kubelet" "${BIN}/kubelet" --config "${dir}/kubelet.yaml" --kubeconfig "${WORK}/pki/$1.kubeconfig" \
    --root-dir "${dir}/kubelet" --cert-dir "${dir}/certificates" --hostname-override "$1" --node-ip "$2"
}

start_proxy() {
  kubeconfig kube-proxy /CN=system:kube-proxy
  cat >"${WORK}/kube-proxy.yaml" <<CONFIG
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: ${WORK}/pki/kube-proxy.kubeconfig}
clusterCIDR: 10.244.0.0/16
hostnameOverride: node1
oomScoreAdj: 0
# These are of the whole machine.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
CONFIG
  daemon kube-proxy "${BIN}/kube-proxy" --config "${WORK}/kube-proxy.yaml"
}

main() {
  local start index name
  start=$(now)
  mkdir -p "${WORK}/pki"
  set_up_network
  set_up_mounts
  start_control_plane
  say "    control plane ($(since "${start}"))"
  start_registry
  say "    images ($(since "${start}"))"
  start_proxy
  for index in 0 1; do
    name="node$((index + 1))"
    start_runtime "${name}" "10.244.${index}.0/24"
    start_kubelet "${name}" "${ADDRESSES[index]}" $((10250 + index * 10))
  done
  for name in node1 node2; do
    until_true "${name} is ready" "${BIN}/kubectl" wait --for=condition=Ready "node/${name}" --timeout=5s
  done
  say "    two nodes ($(since "${start}"))"
  if [[ -n "${NODE_SHELL:-}" ]]; then
    say "A shell: nsenter --target \$(pgrep --full --oldest hack/node/start.sh) --all env KUBECONFIG=${KUBECONFIG} PATH=${BIN}:\${PATH} bash"
    while :; do
      sleep 3600 &
      wait
    done
  fi
  cd "${ROOT}/test/e2e"
  # HOME last: the values before it are those of the caller's.
  GOCACHE="$(go env GOCACHE)" GOMODCACHE="$(go env GOMODCACHE)" TEST_WORK="${WORK}" HOME="${WORK}/home" \
    "${WORK}/bin/e2e.test" -test.v -test.timeout=60m -test.run='^TestNode' "$@" &
  wait $!
}

main "$@"
