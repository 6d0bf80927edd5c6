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

# Functions for the scripts that run Go tests on a cluster which they start. Source it
# after `set -o errexit -o nounset -o pipefail`.
#
# A run keeps all its files in one temporary directory, WORK. Each process that it starts
# is in the process group of `go test`, or has its process group recorded in WORK/pids:
#
#   WORK/cluster   the cluster, as hack/cluster/up.sh makes it
#   WORK/bin       programs that the tests use
#   WORK/home      the home directory of the tests' users, with .kube/config
#   WORK/logs      output of the processes in WORK/pids
#   WORK/pids      file NAME holds the process group of a process that a test started
#   WORK/tmp       temporary files of the go command and of the tests
#
# So the script can remove everything. The test binary cannot: after -timeout or a signal
# it exits without running its cleanups.

# shellcheck source=../hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../hack/lib.sh"

# The tests must never change the cluster of the caller.
unset KUBECONFIG

WORK=""
# Set while a process group that interruptible started may be alive.
ATTENDED=""

# make_work NAME creates WORK and removes it when the script exits.
make_work() {
  cleanup_on_exit
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/sample-controller-$1.XXXXXX")
  # Without symbolic links: hack/cluster finds the processes of a cluster by this path.
  WORK=$(cd "${WORK}" && pwd -P)
  mkdir -p "${WORK}"/{bin,home/.kube,logs,pids,tmp}
  export CLUSTER_NAME="$1" CLUSTER_DIR="${WORK}/cluster" TMPDIR="${WORK}/tmp"
}

# attend CMD... runs CMD like interruptible, and kills what CMD leaves in its process group.
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

# own_cluster_up starts the cluster. CLUSTER_NODES and CLUSTER_ARGS are documented in
# hack/cluster/up.sh.
own_cluster_up() {
  attend "${ROOT}/hack/cluster/up.sh" >/dev/null
  cp "${CLUSTER_DIR}/kubeconfig" "${WORK}/home/.kube/config"
}

# kubectl runs with its cache in WORK, not in the home directory of the caller.
kubectl() {
  attend env HOME="${WORK}/home" "${BIN}/kubectl" --kubeconfig="${WORK}/home/.kube/config" "$@" >/dev/null
}

# install_crd [MANIFESTS...] applies files of artifacts/examples, and waits until the API
# server serves the kinds.
install_crd() {
  local name manifest
  for name in "${@:-crd.yaml}"; do
    manifest="${ROOT}/artifacts/examples/${name}"
    # +drop:crontab
    # With a run every 10 seconds a test that waits for some runs of a CronTab would take minutes.
    sed "s/\(>= duration('*\)10s/\11s/" "${manifest}" >"${WORK}/tmp/${name}"
    manifest="${WORK}/tmp/${name}"
    # +drop:end
    kubectl apply -f "${manifest}"
    # kubectl wait fails while the status has no conditions at all.
    kubectl wait --for=jsonpath='{.status.conditions}' -f "${manifest}"
    kubectl wait --for=condition=Established -f "${manifest}"
  done
}

own_cluster_down() {
  [[ ! -e "${CLUSTER_DIR}" ]] || "${ROOT}/hack/cluster/down.sh"
}

# build_programs builds the controller, and replacements for curl and jq, which not every
# machine has.
build_programs() {
  # A program may have another name than the last element of the module path.
  attend go -C "${ROOT}" build -o "${WORK}/bin/sample-controller" .
  attend go -C "${ROOT}" build -o "${WORK}/bin/curl" ./test/curl
  attend go -C "${ROOT}/hack/tools" build -o "${WORK}/bin/jq" github.com/itchyny/gojq/cmd/gojq
}

# +drop:release
# build_chart builds helm, and the chart in WORK/chart.
build_chart() {
  attend build_helm "${WORK}/bin"
  attend write_chart "${WORK}/chart"
}
# +drop:end

# build_former SETTING COMMIT builds the controller of that commit in WORK/former, and copies its manifests
# there. If the commit or its manifests do not exist, it uses those of this tree, or fails if the variable
# named SETTING is set.
build_former() {
  local commit tree="${WORK}/tmp/former"
  mkdir -p "${WORK}/former" "${tree}"
  if ! git -C "${ROOT}" cat-file -e "$2:artifacts/deploy/install.yaml" 2>/dev/null; then
    [[ -z "${!1:-}" ]] || die "$1=${!1} is not a commit with artifacts/deploy/install.yaml"
    say "There is no former commit: the former version is this one."
    attend build_static "${WORK}/former/sample-controller"
    cp "${ROOT}/artifacts/deploy/install.yaml" "${WORK}/former/"
    return
  fi
  commit=$(git -C "${ROOT}" rev-parse --short "$2^{commit}")
  say "The former version is that of commit ${commit}."
  git -C "${ROOT}" archive "${commit}" | tar -x -C "${tree}"
  attend build_static "${WORK}/former/sample-controller" "${tree}"
  cp "${tree}/artifacts/deploy/install.yaml" "${WORK}/former/"
}

# e2e_cluster_up starts the cluster of the end-to-end tests.
e2e_cluster_up() {
  local args
  # The tests count the controller's writes in the audit log. The policy is copied because
  # up.sh splits CLUSTER_ARGS at blanks, and the path of this repository may contain one.
  cp "${ROOT}/test/e2e/audit-policy.yaml" "${WORK}/tmp/"
  # Some distributions enable OwnerReferencesPermissionEnforcement, which demands the right
  # to finalizers.
  args="--kube-audit-policy ${WORK}/tmp/audit-policy.yaml
    --extra-args kube-apiserver=enable-admission-plugins=OwnerReferencesPermissionEnforcement"
  # +drop:webhooks
  # A test itself runs the Pods with this annotation.
  args+=" --extra-args kwok-controller=disregard-status-with-annotation-selector=kwok.x-k8s.io/status=custom"
  # +drop:end
  # The tests read one file. By default the API server begins another one after 100 MB.
  args+=" --extra-args kube-apiserver=audit-log-maxsize=10000"
  # A node takes 110 Pods: these have room for the Pods of all tests at the same time, also with
  # further kinds.
  CLUSTER_NODES="${CLUSTER_NODES:-20}" CLUSTER_ARGS="${args}" own_cluster_up
}

# go_test ARGS... runs `go test`, and ends the processes that the tests left running.
go_test() {
  local status=0
  attend env TEST_WORK="${WORK}" go -C "${ROOT}" test "$@" || status=$?
  end_recorded "${status}"
  return "${status}"
}

# end_recorded STATUS ends the processes in WORK/pids, and shows their logs if the tests
# failed with that exit status.
end_recorded() {
  local file pid
  for file in "${WORK}"/pids/*; do
    read -r pid 2>/dev/null <"${file}" || continue
    kill -s TERM -- "-${pid}" 2>/dev/null || true
  done
  for file in "${WORK}"/pids/*; do
    read -r pid 2>/dev/null <"${file}" || continue
    # After a signal the test binary had no chance to stop them.
    if [[ "$1" != 0 && "$1" -lt 128 ]]; then
      say "The test binary left ${file##*/} running. The last lines of its log:"
      tail -n 20 "${WORK}/logs/${file##*/}.log" | indent
    fi
    await "-${pid}" 10 || kill -s KILL -- "-${pid}" 2>/dev/null || true
    rm -f "${file}"
  done
}

# cleanup STATUS is called by finish of hack/lib.sh.
cleanup() {
  [[ -n "${WORK}" ]] || return 0
  end_group
  end_recorded "$1"
  own_cluster_down
  rm -rf "${WORK}"
}
