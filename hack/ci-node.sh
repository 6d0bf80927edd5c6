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

# Runs the tests on a real node (make e2e-node) if this machine can have one. If a package is missing,
# it installs it, as root on Debian or Ubuntu. If that does not help, it says that the tests were not
# run, and succeeds.

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=node/lib.sh
source "${ROOT}/hack/node/lib.sh"

# install asks no questions, and waits up to two minutes for another apt-get.
install() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 --option=DPkg::Lock::Timeout=120 --option=Dpkg::Use-Pty=0)
  command -v apt-get >/dev/null && [[ "$(id -u)" == 0 ]] || return 0
  say "Installing ${NODE_PACKAGES[*]}"
  # The old package lists may be good enough.
  { "${apt[@]}" update || true; } >&2
  "${apt[@]}" install --yes --no-install-recommends "${NODE_PACKAGES[@]}" >&2 || true
}

main() {
  local missing
  [[ -z "$(node_missing)" ]] || install
  missing=$(node_missing)
  if [[ -n "${missing}" ]]; then
    echo "The tests on a real node were NOT RUN: ${missing}."
    echo "They have NOT passed. Run 'make e2e-node' on a machine that can have a node."
    return
  fi
  exec make --no-print-directory e2e-node
}

main "$@"
