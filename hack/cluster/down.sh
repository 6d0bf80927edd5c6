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

# Stops a local cluster and deletes its files.
#
#   hack/cluster/down.sh          the cluster of CLUSTER_NAME or CLUSTER_DIR
#   hack/cluster/down.sh --all    all clusters in .cluster

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# stop_starter stops an up.sh that is still starting the cluster. up.sh then removes it.
stop_starter() {
  local starter
  starter=$(lock_owner "${CLUSTER_LOCK}")
  [[ -n "${starter}" ]] || return 0
  say "Stopping up.sh, which is still starting the cluster (process ${starter})."
  kill -s TERM "${starter}" 2>/dev/null || true
  await "${starter}" 60 || die "process ${starter} does not exit"
}

down() {
  local start
  start=$(now)
  stop_starter
  if [[ ! -e "${CLUSTER_MARKER}" && -z "$(component_processes)" ]]; then
    # up.sh has not created this directory: it may be anything.
    if [[ -d "${CLUSTER_DIR}" && "${CLUSTER_DIR}" != "${ROOT}/.cluster/"* ]]; then
      die "${CLUSTER_DIR} was not created by up.sh: nothing deleted."
    fi
    say "There is no cluster in ${CLUSTER_DIR}: nothing to do."
    return 0
  fi
  remove_cluster
  say "Removed the cluster in ${CLUSTER_DIR} ($(since "${start}"))."
}

all() {
  local dir
  for dir in "${ROOT}"/.cluster/*/; do
    [[ -e "${dir}.made-by-cluster-up" ]] || continue
    use_cluster_dir "${dir%/}"
    down
  done
}

case "${1:-}" in
  '') down ;;
  --all) all ;;
  *) die "usage: $0 [--all]" ;;
esac
