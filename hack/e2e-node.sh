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

# Runs the tests of test/e2e that need a real node, on two kubelets with containerd and runc. Everything
# runs in namespaces and a cgroup of its own, and is removed again, also after a failure or a signal.
#
#   hack/e2e-node.sh [ARGS OF A TEST BINARY...]     such as -test.run 'TestNodeRename'
#
#   NODE_FORMER  the commit that TestNodeUpgrade upgrades from, default the last tag; before the first one, that
#                whose manifests were the first to be used by others
#
# It needs Linux, root, and NODE_PACKAGES. It downloads packages with the programs that the Pods run, from
# the sources of apt-get, and does not install them.

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NODE_PACKAGES="containerd runc containernetworking-plugins iptables iproute2 openssl"
# The version of the release that TestNodeRelease installs.
export NODE_RELEASE=v0.0.0-e2e
# The API server and node1, and node2.
ADDRESSES=(172.30.0.2 172.30.0.3)
REGISTRY=127.0.0.1:5000
PACKAGES="${BIN}/node"

check_machine() {
  local program
  for program in apt-get containerd runc iptables unshare ip openssl /usr/lib/cni/bridge; do
    command -v "${program}" >/dev/null ||
      die "there is no ${program}: on Debian or Ubuntu, run apt-get install --no-install-recommends ${NODE_PACKAGES}"
  done
  unshare --mount --net --pid --fork --mount-proc true 2>/dev/null ||
    die "a node needs root, and a machine that allows namespaces of its own: run it with sudo"
}

# cgroup_hierarchies prints their directories: several if the machine has cgroups v1, in which cpu and cpuacct
# may be links to one.
cgroup_hierarchies() {
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    echo /sys/fs/cgroup
  else
    find /sys/fs/cgroup/* -maxdepth 0 -type d -exec test -e '{}/cgroup.procs' \; -print
  fi
}

# cleanup waits for the last processes, which the kernel may still be ending.
cleanup() {
  local hierarchy tries=100
  [[ -n "${NODE_CGROUP:-}" ]] || return 0
  for hierarchy in $(cgroup_hierarchies | sed "s|$|/${NODE_CGROUP}|"); do
    while [[ -d "${hierarchy}" ]] && ! find "${hierarchy}" -depth -type d -exec rmdir {} + 2>/dev/null; do
      ((tries-- > 0)) || { say "ERROR: left behind: ${hierarchy}" && break; }
      sleep 0.1
    done
  done
}

# build_release makes a release of the last commit. Changes in the working tree are not in it.
build_release() {
  git clone --quiet --no-hardlinks "${ROOT}" "${WORK}/clone"
  interruptible env -u IMAGE VERSION="${NODE_RELEASE}" DIR="${WORK}/release" PLATFORMS="linux/$(go env GOARCH)" \
    "${WORK}/clone/hack/release.sh"
  mkdir "${WORK}/layout"
  tar -xf "${WORK}/release/sample-controller_${NODE_RELEASE}_image.tar" -C "${WORK}/layout"
}

file_of() {
  compgen -G "${PACKAGES}/$1_*.deb" || compgen -G "${PACKAGES}/$1t64_*.deb"
}

pack() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "${WORK}/root" -cf "${WORK}/images/$1.tar" .
}

# build_layers makes the layers of the images that the Pods run, without a registry: from packages of Debian, which
# bin/node keeps, from the controller of this tree, and from a former one. Newer releases of Debian and Ubuntu have
# some libraries under a name that ends in t64.
build_layers() {
  local package packages program root="${WORK}/root" download
  download=(interruptible env -C "${PACKAGES}" apt-get --quiet=2 --option=APT::Sandbox::User=root download)
  packages="busybox-static nginx nginx-common libc6 libcrypt1 libpcre2-8-0 libssl3 zlib1g"
  packages+=" memcached libevent-2.1-7 libsasl2-2" # +drop:memcached
  mkdir -p "${WORK}/images" "${PACKAGES}" "${root}"/{etc,tmp,run,dev,proc,sys,bin,var/{log,lib}/nginx,var/tmp}
  chmod 1777 "${root}/tmp"
  for package in ${packages}; do
    [[ -n "$(file_of "${package}")" ]] || "${download[@]}" "${package}" || "${download[@]}" "${package}t64" ||
      die "cannot download the package ${package}: run apt-get update"
    dpkg --extract "$(file_of "${package}")" "${root}"
  done
  for program in sh echo sleep cat true false wget nc ls id env head tail dd date; do
    ln -s busybox "${root}/bin/${program}"
  done
  rm -rf "${root}"/usr/share/{doc,man,locale,lintian,info} "${root}"/usr/lib/*/gconv "${root}"/etc/nginx/{sites-*,modules-enabled}
  printf '%s:/:/bin/sh\n' root:x:0:0:root nginx:x:101:101: memcache:x:11211:11211: >"${root}/etc/passwd"
  printf '%s\n' root:x:0: nginx:x:101: memcache:x:11211: >"${root}/etc/group"
  cat >"${root}/etc/nginx/nginx.conf" <<'NGINX'
user nginx nginx;
worker_processes 1;
error_log /dev/stderr notice;
pid /run/nginx.pid;
events { worker_connections 512; }
http {
  include /etc/nginx/mime.types;
  access_log /dev/stdout;
  server { listen 80; root /usr/share/nginx/html; }
}
NGINX
  pack debian
  rm -rf "${root:?}"/*
  cp "${WORK}/former/sample-controller" "${root}/"
  pack former
  interruptible build_static "${root}/sample-controller"
  pack sample-controller
}

daemon() {
  setsid "${@:2}" >>"${WORK}/logs/$1.log" 2>&1 &
}

# set_up_network needs no dummy device, which the machine may not have.
set_up_network() {
  local address
  hostname node1
  ip link set lo up
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
  local setting dir file upper
  for dir in etc var; do
    upper="${WORK}/overlay/${dir}"
    mkdir -p "${upper}" "${upper}-work"
    mount -t overlay -o "lowerdir=/${dir},upperdir=${upper},workdir=${upper}-work" none "/${dir}"
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
  # CLUSTER_ARGS is split at blanks, and the path of this repository may contain one.
  cp "${ROOT}/test/e2e/audit-policy.yaml" "${WORK}/tmp/"
  CLUSTER_ARGS="--disable-qps-limits=false --disable kwok-controller --kube-audit-policy ${WORK}/tmp/audit-policy.yaml"
  # kwokctl 0.8.0 panics unless the first flag of the n-th component is the n-th of all. That of
  # kube-controller-manager has its default.
  for argument in kube-apiserver=bind-address=0.0.0.0 kube-controller-manager=node-monitor-grace-period=50s \
    "kube-apiserver=advertise-address=${ADDRESSES[0]}" kube-apiserver=endpoint-reconciler-type=lease \
    kube-apiserver=kubelet-preferred-address-types=InternalIP \
    "kube-apiserver=kubelet-client-certificate=${PKI}/admin.crt" "kube-apiserver=kubelet-client-key=${PKI}/admin.key"; do
    CLUSTER_ARGS+=" --extra-args ${argument}"
  done
  export CLUSTER_ARGS CLUSTER_NODES=0
  # The API server's certificate has all addresses of the machine: this one is that of the Service kubernetes.
  ip address add 10.0.0.1/32 dev node0
  own_cluster_up
  ip address del 10.0.0.1/32 dev node0
  export KUBECONFIG="${WORK}/home/.kube/config"
}

# start_registry serves the images, and containerd takes each registry's from there.
start_registry() {
  local host="http://${REGISTRY}" dir=/etc/containerd/certs.d/_default
  mkdir -p "${dir}" "${WORK}/registry"
  printf 'server = "%s"\n[host."%s"]\n  capabilities = ["pull", "resolve"]\n' "${host}" "${host}" >"${dir}/hosts.toml"
  daemon registry "${BIN}/crane" registry serve --address "${REGISTRY}" --disk "${WORK}/registry"
  retry 60 "the registry does not answer" "${BIN}/crane" catalog --insecure "${REGISTRY}"
  image debian library/nginx:latest --cmd nginx,-g,'daemon off;' --env PATH=/usr/sbin:/usr/bin:/bin
  image debian library/memcached:1.6-alpine --cmd memcached --env PATH=/usr/bin:/bin --user memcache # +drop:memcached
  image debian library/busybox:latest --cmd sh --env PATH=/bin
  # A Pod's first container, which holds its namespaces.
  image debian library/pause:node --entrypoint /bin/tail,-f,/dev/null
  image sample-controller sample-controller:dev --entrypoint /sample-controller --user 65532:65532
  image former sample-controller:former --entrypoint /sample-controller --user 65532:65532
  retry 0 "the release" "${BIN}/crane" push --insecure "${WORK}/layout" "${REGISTRY}/sample-controller:${NODE_RELEASE}"
}

# image LAYER NAME FLAGS... pushes an image of that layer, with the flags of crane mutate.
image() {
  local name="${REGISTRY}/$2"
  retry 0 "image $2" "${BIN}/crane" append --insecure --new_layer "${WORK}/images/$1.tar" --new_tag "${name}"
  retry 0 "image $2" "${BIN}/crane" mutate --insecure --set-platform "linux/$(go env GOARCH)" --tag "${name}" "${@:3}" "${name}"
}

# kubeconfig NAME SUBJECT writes NAME.kubeconfig with a certificate for that user.
kubeconfig() {
  local file="${WORK}/pki/$1"
  openssl req -newkey rsa:2048 -nodes -keyout "${file}.key" -subj "$2" -out "${file}.csr" 2>/dev/null
  openssl x509 -req -in "${file}.csr" -CA "${PKI}/ca.crt" -CAkey "${PKI}/ca.key" -CAcreateserial -days 3 \
    -extfile <(echo extendedKeyUsage=clientAuth) -out "${file}.crt" 2>/dev/null
  cp "${KUBECONFIG}" "${file}.kubeconfig"
  "${BIN}/kubectl" --kubeconfig="${file}.kubeconfig" config set-credentials "$1" \
    --client-certificate="${file}.crt" --client-key="${file}.key" >/dev/null
  "${BIN}/kubectl" --kubeconfig="${file}.kubeconfig" config set-context --current --user="$1" >/dev/null
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
  retry 60 "containerd of $1 has not started" grep 'containerd successfully booted' "${WORK}/logs/$1-containerd.log"
}

# start_kubelet NODE ADDRESS PORT starts a kubelet, with a health endpoint on the next port.
start_kubelet() {
  local dir="${WORK}/$1" hierarchy
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

# start_proxy leaves the limits of the whole machine alone.
start_proxy() {
  kubeconfig kube-proxy /CN=system:kube-proxy
  daemon kube-proxy "${BIN}/kube-proxy" --kubeconfig "${WORK}/pki/kube-proxy.kubeconfig" --proxy-mode iptables \
    --cluster-cidr 10.244.0.0/16 --hostname-override node1 --oom-score-adj 0 --conntrack-max-per-core 0 \
    --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s
}

# inside is the first process of the namespaces: when it ends, the kernel ends all others, and removes mounts and
# interfaces.
inside() {
  local begun index name
  begun="${SECONDS}"
  WORK="${NODE_WORK}"
  trap '(($? == 0)) || tail -n 3 "${WORK}"/logs/*.log >&2' EXIT
  PKI="${WORK}/cluster/.kwok/clusters/control-plane/pki"
  mkdir -p "${WORK}/pki"
  set_up_network
  set_up_mounts
  start_control_plane
  say "    control plane ($(since "${begun}"))"
  start_registry
  say "    images ($(since "${begun}"))"
  start_proxy
  for index in 0 1; do
    name="node$((index + 1))"
    start_runtime "${name}" "10.244.${index}.0/24"
    start_kubelet "${name}" "${ADDRESSES[index]}" $((10250 + index * 10))
  done
  for name in node1 node2; do
    retry 60 "${name} is not ready" "${BIN}/kubectl" wait --for=condition=Ready "node/${name}" --timeout=5s
  done
  say "    two nodes ($(since "${begun}"))"
  cd "${ROOT}/test/e2e"
  # HOME last: the values before it are those of the caller's.
  GOCACHE="$(go env GOCACHE)" GOMODCACHE="$(go env GOMODCACHE)" TEST_WORK="${WORK}" HOME="${WORK}/home" \
    interruptible "${WORK}/bin/e2e.test" -test.v -test.timeout=60m -test.run='^TestNode' "$@"
}

main() {
  check_machine
  make_work node
  interruptible "${ROOT}/hack/cluster.sh" build kubelet kube-proxy crane
  build_programs
  build_former NODE_FORMER "${NODE_FORMER:-$(git -C "${ROOT}" describe --tags --abbrev=0 2>/dev/null || echo cf8be6b)}"
  build_release
  interruptible build_helm "${WORK}/bin"
  interruptible go -C "${ROOT}" test -c -tags e2e,node,teardown -o "${WORK}/bin/e2e.test" ./test/e2e
  build_layers
  # A cgroup named after WORK, in each hierarchy.
  export NODE_WORK="${WORK}" NODE_CGROUP="${WORK##*/}"
  cgroup_hierarchies | sed "s|$|/${NODE_CGROUP}|" | xargs mkdir
  # The namespaces end with this script also if that is killed.
  interruptible setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --uts --ipc --mount-proc \
    bash "${ROOT}/hack/e2e-node.sh" --inside "$@"
}

if [[ "${1:-}" == --inside ]]; then
  trap 'exit 130' INT
  trap 'exit 143' TERM
  inside "${@:2}"
else
  main "$@"
fi
