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

# Runs the tests of test/e2e that need a real node, on a kubelet with containerd and runc. Everything
# runs in namespaces and a cgroup of its own, and is removed again, also after a failure or a signal.
#
#   hack/e2e-node.sh [ARGS OF A TEST BINARY...]     such as -test.run 'TestNodeRename'
#
#   NODE_FORMER  the commit that TestNodeUpgrade upgrades from, default the last tag
#   NODE_SHELL   not empty: no tests, but a node that exists until Ctrl-C, and the command for a shell
#
# It needs Linux, root, and the packages in NODE_PACKAGES. It downloads packages with the programs
# that the Pods run, from the sources of apt-get, and does not install them.

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"
# shellcheck source=node/lib.sh
source "${ROOT}/hack/node/lib.sh"

# The version of the release that TestNodeRelease installs.
export NODE_RELEASE=v0.0.0-e2e

finish_node() {
  finish "$1"
  remove_cgroups
}

# make_cgroups makes a cgroup named after WORK, in each hierarchy if the machine has cgroups v1.
make_cgroups() {
  local hierarchy
  export NODE_CGROUP="${WORK##*/}"
  for hierarchy in $(cgroup_hierarchies); do
    mkdir "${hierarchy}/${NODE_CGROUP}"
  done
}

cgroup_hierarchies() {
  local dir
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    echo /sys/fs/cgroup
    return
  fi
  for dir in /sys/fs/cgroup/*; do
    # cpu and cpuacct may be links to one hierarchy.
    [[ -L "${dir}" || ! -e "${dir}/cgroup.procs" ]] || echo "${dir}"
  done
}

# remove_cgroups waits for the last processes, which the kernel may still be ending.
remove_cgroups() {
  local hierarchy tries=100
  [[ -n "${NODE_CGROUP:-}" ]] || return 0
  for hierarchy in $(cgroup_hierarchies); do
    while [[ -d "${hierarchy}/${NODE_CGROUP}" ]] && ! find "${hierarchy}/${NODE_CGROUP}" -depth -type d -exec rmdir {} + 2>/dev/null; do
      ((tries-- > 0)) || { say "ERROR: left behind: ${hierarchy}/${NODE_CGROUP}" && break; }
      sleep 0.1
    done
  done
}

# clean_up_after_kill removes everything if this script is killed and cannot. All its processes have the
# pipe, which the kernel closes with the last of them.
clean_up_after_kill() {
  exec 8> >(
    trap '' HUP INT TERM
    cat >/dev/null
    remove_cgroups
    rm -rf "${WORK}"
  )
}

# former_release prints the commit to upgrade from. Before the first tag it is the one whose manifests were
# the first to be used by others.
former_release() {
  [[ -z "${NODE_FORMER:-}" ]] || { echo "${NODE_FORMER}" && return; }
  git -C "${ROOT}" describe --tags --abbrev=0 2>/dev/null || echo cf8be6b
}

# build_release makes a release of the last commit. Changes in the working tree are not in it.
build_release() {
  git clone --quiet --no-hardlinks "${ROOT}" "${WORK}/clone"
  attend env -u IMAGE VERSION="${NODE_RELEASE}" DIR="${WORK}/release" PLATFORMS="linux/$(go env GOARCH)" "${WORK}/clone/hack/release.sh"
  mkdir "${WORK}/layout"
  tar -xf "${WORK}/release/sample-controller_${NODE_RELEASE}_image.tar" -C "${WORK}/layout"
}

build() {
  attend "${ROOT}/hack/cluster/build.sh"
  attend "${ROOT}/hack/cluster/build.sh" kubelet kube-proxy crane
  build_programs
  build_former NODE_FORMER "$(former_release)"
  build_release
  attend build_helm "${WORK}/bin"
  attend go -C "${ROOT}" test -c -tags e2e,node,teardown -o "${WORK}/bin/e2e.test" ./test/e2e
  attend "${ROOT}/hack/node/images.sh" "${WORK}/images" "${WORK}/former/sample-controller"
}

main() {
  local missing
  missing=$(node_missing)
  [[ -z "${missing}" ]] || die "${missing}"
  make_work node
  trap 'finish_node $?' EXIT
  build
  make_cgroups
  clean_up_after_kill
  # The signal of Ctrl-C has to reach the first process of the namespaces, which ends with this script
  # also if that is killed.
  CHILD_IS_GO=yes
  attend env WORK="${WORK}" setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --uts --ipc --mount-proc \
    bash "${ROOT}/hack/node/start.sh" "$@"
}

main "$@"
