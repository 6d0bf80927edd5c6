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

# Fails unless docs/tutorial.md works: runs its commands, patches and files from top to bottom
# in a temporary directory, and compiles the fork that they make, with the tests of all build
# tags. This is also the check that forks work.
#
#   FULL=1   also the blocks that the page marks with "full": those with a cluster, and those
#            that take long (`make tutorial`)

# shellcheck disable=SC2317 # lib.sh calls cleanup

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"

WORK=""

cleanup() {
  local down
  [[ -n "${WORK}" ]] || return 0
  for down in "${WORK}"/*/.cluster/*/; do
    [[ ! -e "${down}" ]] || CLUSTER_DIR="${down}" "${ROOT}/hack/cluster.sh" down
  done
  rm -rf "${WORK}"
}

# publish makes the files of this tree, committed or not, the repository that the tutorial
# clones.
publish() {
  local repository="${WORK}/origin.git"
  local commit=(git --git-dir="${repository}" --work-tree="${ROOT}")
  git init --quiet --bare --initial-branch=main "${repository}"
  "${commit[@]}" add --all
  "${commit[@]}" commit --quiet --message="As it is now"
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.${repository}.insteadOf"
  export GIT_CONFIG_VALUE_0="https://$(go list -m)"
}

# vet_forks compiles the repositories that the tutorial has made.
vet_forks() {
  local dir tags
  for dir in "${WORK}"/*/; do
    if [[ -e "${dir}go.mod" && ! -e "${dir}hack/fork" ]]; then
      tags=$(sed -n 's/^TAGS=//p' "${dir}hack/lint.sh")
      interruptible go -C "${dir}" vet -tags "${tags}" ./...
    fi
  done
}

main() {
  cleanup_on_exit
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/tutorial.XXXXXX")
  WORK=$(cd "${WORK}" && pwd -P)
  # A machine of CI may have no name for commits.
  export GIT_AUTHOR_NAME=tutorial GIT_AUTHOR_EMAIL=tutorial@localhost
  export GIT_COMMITTER_NAME=tutorial GIT_COMMITTER_EMAIL=tutorial@localhost
  # The settings of a caller, such as make, concern this repository and its cluster.
  unset KUBECONFIG CLUSTER_NAME CLUSTER_DIR MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES
  export KUBECACHEDIR="${WORK}/.kubectl" CODEGEN_GOBIN="${BIN}/codegen"
  publish
  mkdir "${WORK}/.bin"
  interruptible go build -o "${WORK}/.bin/tutorial" ./hack/tutorial
  interruptible "${WORK}/.bin/tutorial" ${FULL:+-full} "${ROOT}" "${WORK}"
  vet_forks
}

main "$@"
