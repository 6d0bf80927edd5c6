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

# Starts a cluster, runs a suite of tests on it, and removes the cluster and all files again, also
# after a failure or a signal.
#
#   hack/e2e.sh [SUITE] [ARGS OF go test...]     such as -run TestContract
#
# SUITE is e2e, which is the default, or one of SUITES below, which `make help` describes.
#
#   COMPARE_REQUESTS  how many requests compare sends, default 100000 # +drop:compare
#   CHECK=part        each fault once in each class of request and in each watch, as `check -part` # +drop:check
#   FAILOVER=part     one change of the leader of each kind # +drop:failover
#   FAILOVER_FROM     the commit to roll from, default HEAD^, or HEAD if the tree has changes # +drop:failover
#   VERSIONS          for the suite versions, such as "1.35 1.36", default all in hack/cluster/versions # +drop:versions

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SUITES="e2e image"
SUITES+=" check" # +drop:check
SUITES+=" compare" # +drop:compare
SUITES+=" failover outages" # +drop:failover
SUITES+=" versions" # +drop:versions
BUILT=""
IMAGE=""

cleanup() {
  local left
  rm -f "${BUILT}"
  [[ -n "${IMAGE}" ]] || return 0
  left=$("${CONTAINER_TOOL}" ps --all --quiet --filter "label=${WORK##*/}" 2>/dev/null) || left=""
  # shellcheck disable=SC2086 # one argument for each
  [[ -z "${left}" ]] || "${CONTAINER_TOOL}" rm --force ${left} >/dev/null 2>&1
  "${CONTAINER_TOOL}" rmi --force "${IMAGE}" >/dev/null 2>&1
}

# start_cluster NODES ARGS is for any suite. The caller's settings come last.
start_cluster() {
  export CLUSTER_NODES="${CLUSTER_NODES:-$1}" CLUSTER_ARGS="$2 ${CLUSTER_ARGS:-}"
  own_cluster_up
  TEST_ETCD="http://127.0.0.1:$(sed -n 's/ *etcdPort: //p' "${CLUSTER_DIR}/.kwok/kwok.yaml")"
  export TEST_ETCD
}

# start_e2e_cluster has room for the Pods of all tests at the same time, also with further kinds: a node takes 110.
# The tests count the controller's writes in one file of the audit log: by default the API server begins another
# one after 100 MB. Some distributions enable OwnerReferencesPermissionEnforcement, which demands the right to
# finalizers. The audit policy is copied because CLUSTER_ARGS is split at blanks, which the path of this repository may
# contain.
start_e2e_cluster() {
  local args="--kube-audit-policy ${WORK}/tmp/audit-policy.yaml"
  cp "${ROOT}/test/e2e/audit-policy.yaml" "${WORK}/tmp/"
  args+=" --extra-args kube-apiserver=enable-admission-plugins=OwnerReferencesPermissionEnforcement"
  start_cluster 20 "${args} --extra-args kube-apiserver=audit-log-maxsize=10000"
}

e2e() {
  local last='TestLeastPrivilege|TestUndeploy.*|TestInstall'
  # Walkthrough 1 builds the controller here, as its reader does.
  [[ -e "${ROOT}/sample-controller" ]] || BUILT="${ROOT}/sample-controller"
  build_programs
  # +drop:release
  last+='|TestChart'
  if [[ $# == 0 ]]; then
    interruptible build_helm "${WORK}/bin"
    interruptible write_chart "${WORK}/chart"
  fi
  # +drop:end
  start_e2e_cluster
  # +drop:bench
  [[ $# -gt 0 ]] || KUBEBUILDER_ASSETS="${BIN}" interruptible go -C "${ROOT}/test/bench/peer" test ./...
  # +drop:end
  go_test -tags e2e -v -timeout 30m -parallel 8 ./test/e2e "$@"
  # These need the audit log of all other tests, or remove the controller and the CRDs.
  [[ $# -gt 0 ]] || go_test -tags e2e,teardown -v -timeout 30m -run "^(${last})\$" ./test/e2e
}

image() {
  build_programs
  CONTAINER_TOOL=$(container_tool)
  E2E_RUN=$(container_run "${CONTAINER_TOOL}")
  # Names of images must be lower case.
  IMAGE=$(tr '[:upper:]' '[:lower:]' <<<"localhost/sample-controller:${WORK##*.}")
  export CONTAINER_TOOL E2E_RUN E2E_IMAGE="${IMAGE}"
  interruptible "${ROOT}/hack/deploy.sh" image "${IMAGE}"
  start_e2e_cluster
  go_test -tags e2e -timeout 8m -run '^TestWalkthrough3$' ./test/e2e "$@"
}

# +drop:compare
# compare needs a control plane without controllers, in which nothing but the test writes.
compare() {
  start_cluster 0 "--extra-args etcd=unsafe-no-fsync=true"
  install_crds crd.yaml
  own_kubectl apply -f "${ROOT}/test/compare/policies.yaml"
  pause_controllers
  export COMPARE_REQUESTS="${COMPARE_REQUESTS:-100000}"
  go_test -tags compare -v -timeout 60m -parallel 16 ./test/compare "$@"
}
# +drop:end

# +drop:check
# start_busy_cluster is for many runs, whose Pods and Services stay until the end. Retries of the Deployment controller
# share a limit of ten a second: one whose ReplicaSet is just being collected would wait for minutes, but for a resync.
start_busy_cluster() {
  start_cluster 100 "--extra-args kube-controller-manager=min-resync-period=20s
    --extra-args kube-apiserver=service-cluster-ip-range=10.0.0.0/12"
  install_crds
  own_kubectl apply -f "${ROOT}/test/check/policies.yaml"
}

# check_suites FLAGS... -- COMMAND... checks the suite of each kind.
check_suites() {
  local file suites=()
  for file in testdata/suites.yaml pkg/controller/*/testdata/suites.yaml; do
    [[ ! -e "${file}" ]] || suites+=(-suite "${file}")
  done
  "${WORK}/bin/check" -keep -kubeconfig "${WORK}/home/.kube/config" "${suites[@]}" "$@"
}

# check_wrong JUDGE COMMAND... fails unless that judge has a finding about this wrong controller in each suite. On a busy
# machine one may rest for a while, and be found out in the scenario after the example.
check_wrong() {
  local found suites=(testdata/suites.yaml pkg/controller/*/testdata/suites.yaml)
  found=$(check_suites -part -only created -- "${@:2}" 2>/dev/null |
    awk -v judge="$1:" '/^[^ ].*suites.yaml:$/ { suite = $1 } $1 == "FINDING" && $2 == judge && !found[suite]++ { n++ } END { print n + 0 }') || true
  [[ "${found}" == "$(ls "${suites[@]}" 2>/dev/null | wc -l)" ]]
}

# check_all FLAGS... also checks two wrong controllers. With the default of 10 s a busy machine may lose its lease.
check_all() {
  local status=0 idle busy
  cd "${ROOT}"
  check_wrong idle sleep 1000 &
  idle=$!
  # shellcheck disable=SC2016 # the controller's shell replaces it
  check_wrong settled bash -c 'while sleep 1; do "$0" --kubeconfig={} annotate {controller} x --overwrite "at=${SECONDS}"; done' "${BIN}/kubectl" &
  busy=$!
  check_suites -parallel "$((16 * $(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)))" "$@" -- \
    "${WORK}/bin/sample-controller" --kubeconfig={} --controllers={controller} --namespace={namespace} --workers=1 \
    --leader-elect --leader-elect-resource-namespace={namespace} --leader-elect-lease-duration=30s \
    --leader-elect-renew-deadline=20s -v=2 || status=$?
  wait "${idle}" || { say "ERROR: in a suite a controller that does nothing is not found" && status=1; }
  wait "${busy}" || { say "ERROR: in a suite a controller that writes every second is not found" && status=1; }
  return "${status}"
}

check() {
  local race=true
  [[ "${CHECK}" != part ]] || { set -- -part "$@" && race=false; }
  # The race detector needs cgo.
  CGO_ENABLED=1 interruptible go -C "${ROOT}" build "-race=${race}" -o "${WORK}/bin/sample-controller" .
  interruptible go -C "${ROOT}" build -o "${WORK}/bin/check" ./test/check
  start_busy_cluster
  # In full a data race, or a changed object of a cache, ends the controller: that is a finding.
  [[ "${CHECK}" == part ]] || export GORACE=halt_on_error=1 KUBE_CACHE_MUTATION_DETECTOR=true
  interruptible check_all "$@"
}
# +drop:end

# +drop:failover
failover() {
  local former=HEAD^
  [[ "${FAILOVER}" != part || -r /proc/self/cmdline ]] || { say "Skipping what needs Linux." && return; }
  [[ -z "$(git -C "${ROOT}" status --porcelain 2>/dev/null)" ]] || former=HEAD
  interruptible go -C "${ROOT}" build -o "${WORK}/bin/sample-controller" .
  build_former FAILOVER_FROM "${FAILOVER_FROM:-${former}}"
  # With API Priority and Fairness, but without the client-side limits of kube-controller-manager and the scheduler: at
  # their default of 20 requests a second the test would only measure them. The test reads the history of all objects
  # from etcd, so the API server must not compact it.
  # (kwokctl 0.8 requires the first argument of each component before any second one.)
  start_cluster 20 "--disable-qps-limits=false
    --extra-args kube-apiserver=etcd-compaction-interval=0 --extra-args kube-controller-manager=kube-api-qps=5000
    --extra-args kube-scheduler=kube-api-qps=5000 --extra-args kube-controller-manager=kube-api-burst=10000
    --extra-args kube-scheduler=kube-api-burst=10000 --extra-args kube-controller-manager=leader-elect=false
    --extra-args kube-scheduler=leader-elect=false"
  # This includes the Deployment of the controller, whose Pods are simulated.
  own_kubectl apply -f "${ROOT}/artifacts/deploy/install.yaml"
  own_kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io
  [[ $# -gt 0 ]] || set -- -skip '^TestOutages$'
  go_test -tags faults -v -timeout 30m ./test/failover "$@"
}

outages() {
  interruptible go -C "${ROOT}" build -o "${WORK}/bin/sample-controller" .
  # The API server must not compact the history, which the test reads from etcd. After a restart kwok leaves
  # the nodes alone until the lease of the previous kwok has expired. Others would exit when they lose theirs.
  start_cluster 20 "--extra-args kube-apiserver=etcd-compaction-interval=0
    --extra-args kube-controller-manager=leader-elect=false --extra-args kube-scheduler=leader-elect=false
    --extra-args kwok-controller=node-lease-duration-seconds=40"
  install_crds crd.yaml
  [[ $# -gt 0 ]] || set -- -skip '^TestFailover$'
  go_test -tags faults -v -timeout 60m ./test/failover "$@"
}
# +drop:end

# +drop:versions
versions() {
  local version begun result table="" tests="Walkthrough|Contract"
  tests+="|Memcached" # +drop:memcached
  tests+="|CronTab" # +drop:crontab
  cd "${ROOT}/hack/cluster/versions"
  for version in ${VERSIONS:-*}; do
    begun="${SECONDS}" result=passed
    say "==> Kubernetes ${version}"
    CLUSTER_VERSION="${version}" TMPDIR="${WORK%/*}" interruptible "${ROOT}/hack/e2e.sh" -run "^Test(${tests})" || result=FAILED
    table+="| $("${BIN}/${version}/kube-apiserver" --version) | ${result} | $(since "${begun}") |"$'\n'
  done
  printf '| version | walkthroughs and contract | time |\n|---|---|---|\n%s' "${table}"
  [[ "${table}" != *FAILED* ]]
}
# +drop:end

SUITE=e2e
if [[ "${1:-}" =~ ^[a-z0-9]+$ ]]; then
  SUITE="$1"
  shift
fi
[[ " ${SUITES} " == *" ${SUITE} "* ]] || die "there is no suite ${SUITE}: there are ${SUITES}"
export FAILOVER="${FAILOVER:-all}" # +drop:failover
export CHECK="${CHECK:-all}" # +drop:check
make_work "${SUITE}"
"${SUITE}" "$@"
