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

# Takes the API server, etcd and all of the control plane away while users change
# Foos, on a cluster of its own, and removes all of it again, however that ends.
# Prints a table. Needs Linux.
#
#   hack/outages.sh [ARGS OF go test...]     such as -run 'TestOutages/minute'

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

export CLUSTER_NODES="${CLUSTER_NODES:-20}"
# What happened is read from etcd afterwards, so only the test may compact it. And
# simulated nodes are idle until the lease of the kwok before has run out.
export CLUSTER_ARGS="${CLUSTER_ARGS:-} --extra-args kube-apiserver=etcd-compaction-interval=0
  --extra-args kwok-controller=node-lease-duration-seconds=40"

main() {
  local status=0
  make_work outages
  attend go -C "${ROOT}" build -o "${WORK}/bin/" .
  own_cluster_up
  install_crd
  [[ $# -gt 0 ]] || set -- -run '^TestOutages$'
  go_test -count=1 -tags faults -timeout 60m ./test/faults "$@" || status=$?
  [[ ! -e "${WORK}/report" ]] || cat "${WORK}/report"
  return "${status}"
}

main "$@"
