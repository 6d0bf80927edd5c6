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

# What the scripts that run Go tests on a cluster of their own share. To be
# sourced after `set -o errexit -o nounset -o pipefail`.
#
# All that such a run makes lies in one temporary directory, WORK, and all that
# it starts is either in the process group of `go test` or recorded there:
#
#   WORK/cluster   the cluster, as hack/cluster/up.sh makes it
#   WORK/bin       programs that the tests use
#   WORK/home      the home directory of the tests' users, with .kube/config
#   WORK/logs      what the processes in WORK/pids say
#   WORK/pids      NAME holds the process group of something that a test started
#   WORK/tmp       temporary files of the go command and of the tests
#
# So it is all gone in the end, whatever became of the tests: a test binary that
# hits -timeout or a signal has no chance to clean up after itself.

# shellcheck source=../hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../hack/lib.sh"

# Whatever cluster the caller works with, these tests never do.
unset KUBECONFIG

WORK=""
# Whether a process group of interruptible's may be alive.
ATTENDED=""

# make_work makes WORK and sees to it that it goes with the script.
make_work() {
  cleanup_on_exit
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/sample-controller-$1.XXXXXX")
  # One spelling, because clusters are recognized by it.
  WORK=$(cd "${WORK}" && pwd -P)
  mkdir -p "${WORK}"/{bin,home/.kube,logs,pids,tmp}
  export CLUSTER_NAME="$1" CLUSTER_DIR="${WORK}/cluster" TMPDIR="${WORK}/tmp"
  # Go removes its temporary files after an interrupt, but not when terminated.
  CHILD_SIGNAL=INT
}

# attend CMD... is interruptible, but leaves nothing of the process group behind.
attend() {
  local status=0
  ATTENDED=yes
  interruptible "$@" || status=$?
  end_group
  return "${status}"
}

end_group() {
  [[ -z "${ATTENDED}" || -z "${SPAWNED:-}" ]] || kill -s KILL -- "-${SPAWNED}" 2>/dev/null || true
  ATTENDED=""
}

# own_cluster_up starts the cluster; CLUSTER_NODES and CLUSTER_ARGS are as in
# hack/cluster/up.sh.
own_cluster_up() {
  attend "${ROOT}/hack/cluster/up.sh" >/dev/null
  cp "${CLUSTER_DIR}/kubeconfig" "${WORK}/home/.kube/config"
}

# kubectl's cache goes where everything else goes.
kubectl() {
  attend env HOME="${WORK}/home" "${BIN}/kubectl" --kubeconfig="${WORK}/home/.kube/config" "$@" >/dev/null
}

# install_crd [MANIFESTS...] takes names in artifacts/examples.
install_crd() {
  local name manifest
  for name in "${@:-crd.yaml}"; do
    manifest="${ROOT}/artifacts/examples/${name}"
    kubectl apply -f "${manifest}"
    # It cannot wait for a condition where there is none at all yet.
    kubectl wait --for=jsonpath='{.status.conditions}' -f "${manifest}"
    kubectl wait --for=condition=Established -f "${manifest}"
  done
}

own_cluster_down() {
  [[ ! -e "${CLUSTER_DIR}" ]] || "${ROOT}/hack/cluster/down.sh"
}

# build_programs builds what the tests call: the controller, and stand-ins for
# curl and jq, so that the tests are the same on every machine.
build_programs() {
  attend go -C "${ROOT}" build -o "${WORK}/bin/" . ./test/curl
  attend go -C "${ROOT}/hack/tools" build -o "${WORK}/bin/jq" github.com/itchyny/gojq/cmd/gojq
}

# e2e_cluster_up starts the cluster of the end-to-end tests.
e2e_cluster_up() {
  # The tests count the controller's writes at the API server. (up.sh splits
  # CLUSTER_ARGS at blanks, which the path of this repository may have.)
  cp "${ROOT}/test/e2e/audit-policy.yaml" "${WORK}/tmp/"
  # An autoscaler looks every 15 seconds, if not told otherwise. The plugin is on by
  # default in other distributions, and then takes one more right.
  # Room for the Pods of all tests at the same time: a node takes 110.
  CLUSTER_NODES="${CLUSTER_NODES:-6}" CLUSTER_ARGS="--kube-audit-policy ${WORK}/tmp/audit-policy.yaml --extra-args kube-controller-manager=horizontal-pod-autoscaler-sync-period=2s
    --extra-args kube-apiserver=enable-admission-plugins=OwnerReferencesPermissionEnforcement" own_cluster_up
}

# go_test ARGS... is `go test`, and the end of all that it started.
go_test() {
  local status=0
  attend env TEST_WORK="${WORK}" go -C "${ROOT}" test "$@" || status=$?
  end_recorded "${status}"
  return "${status}"
}

# end_recorded STATUS ends what the tests have recorded and not ended.
end_recorded() {
  local file pid
  for file in "${WORK}"/pids/*; do
    read -r pid 2>/dev/null <"${file}" || continue
    kill -s TERM -- "-${pid}" 2>/dev/null || true
  done
  for file in "${WORK}"/pids/*; do
    read -r pid 2>/dev/null <"${file}" || continue
    # Not after a signal: then it is no news.
    if [[ "$1" != 0 && "$1" -lt 128 ]]; then
      say "The test binary left ${file##*/} running. The last lines of its log:"
      tail -n 20 "${WORK}/logs/${file##*/}.log" | indent
    fi
    await "-${pid}" 10 || kill -s KILL -- "-${pid}" 2>/dev/null || true
    rm -f "${file}"
  done
}

# cleanup is called by finish of hack/lib.sh.
cleanup() {
  [[ -n "${WORK}" ]] || return 0
  end_group
  end_recorded "$1"
  own_cluster_down
  rm -rf "${WORK}"
}
