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

# What a machine needs for a real node. Source it after `set -o errexit -o nounset -o pipefail`.

# The packages of Debian that hack/e2e-node.sh needs.
NODE_PACKAGES=(containerd runc containernetworking-plugins iptables iproute2 openssl)

# node_missing prints why this machine cannot run a node, or nothing.
node_missing() {
  local program
  [[ "$(uname -s)" == Linux ]] || { echo "a node needs Linux" && return; }
  [[ "$(id -u)" == 0 ]] || { echo "a node needs root: run it with sudo" && return; }
  command -v apt-get >/dev/null || { echo "a node needs the packages of Debian or Ubuntu: there is no apt-get" && return; }
  for program in containerd runc iptables unshare ip openssl; do
    command -v "${program}" >/dev/null || { echo "there is no ${program}: run apt-get install --no-install-recommends ${NODE_PACKAGES[*]}" && return; }
  done
  [[ -x /usr/lib/cni/bridge ]] || { echo "there is no /usr/lib/cni/bridge: run apt-get install --no-install-recommends ${NODE_PACKAGES[*]}" && return; }
  unshare --mount --net --pid --fork --mount-proc true 2>/dev/null || echo "this machine allows no namespaces of its own (unshare)"
}
