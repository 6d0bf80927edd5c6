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

# Functions that the scripts in hack/ share. Source it after `set -o errexit -o nounset
# -o pipefail`. It runs on bash 3.2 (macOS) and needs only coreutils, git and Go.

# shellcheck disable=SC2034 # the scripts that source this file use the variables

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BIN="${ROOT}/bin"

# A go.work in a parent directory would override the versions that this repository pins.
export GOWORK=off
# In POSIX mode bash forgets the status of a child once it was waited for.
unset POSIXLY_CORRECT
# The caller's kubectl preferences could change flags and aliases.
export KUBERC=off

# Progress goes to stderr, so that a caller can read the result from stdout.
say() {
  printf '%s\n' "$*" >&2
}

die() {
  say "ERROR: $*"
  exit 1
}

# complain MESSAGE is for a script that goes on to look for more, and exits with FAILED.
FAILED=0
complain() {
  say "$*"
  FAILED=1
}

# retry SECONDS WHAT CMD... runs CMD until it succeeds, and dies with WHAT and its output after so long.
retry() {
  local end=$((SECONDS + $1)) output
  until output=$("${@:3}" 2>&1); do
    ((SECONDS < end)) || die "$2: ${output}"
    sleep 0.5
  done
}

indent() {
  sed 's/^/    /' >&2
}

# since START prints the time since START, a value of SECONDS.
since() {
  echo "$((SECONDS - $1)) s"
}

# sources ENDING prints the files of the working directory with that ending, without what make writes.
sources() {
  find . \( -path ./bin -o -path ./dist -o -path ./.git -o -path ./.cluster \) -prune -o -type f -name "*$1" -print
}

# A terminal sends Ctrl-C to its whole foreground process group, and bash delays its traps
# until the command in the foreground has ended. So a command that takes longer than a
# moment runs in its own process group while the shell is in `wait`. Only the script gets
# the signal, without delay, and stops its children in the right order.

# The process that the script waits for. Its process group has the same number.
CHILD=""
# The directory of this run, see make_work.
WORK=""

# spawn CMD... starts CMD in its own process group. SPAWNED is its pid.
spawn() {
  set -m
  "$@" &
  set +m
  SPAWNED=$!
}

# running PID is true while the process (-PID: the process group) exists.
running() {
  kill -0 -- "$1" 2>/dev/null
}

# await PID SECONDS waits until the process (-PID: the group) is gone, and fails after so long.
await() {
  local tries=$(($2 * 10))
  while running "$1"; do
    ((tries-- > 0)) || return 1
    sleep 0.1
  done
}

# stop PID SECONDS ends the process (-PID: the group), and kills it after so long.
stop() {
  # Otherwise bash reports that it was terminated.
  disown "${1#-}" 2>/dev/null || true
  kill -s TERM -- "$1" 2>/dev/null || true
  await "$1" "$2" && return
  say "Process ${1#-} did not stop within $2 s: killing it."
  kill -s KILL -- "$1" 2>/dev/null || true
}

# interruptible CMD... runs CMD, and kills what it leaves in its process group. A signal to the
# script ends the wait and stops CMD.
interruptible() {
  while_true "" "$@"
}

# while_true CHECK CMD... is interruptible, and stops CMD and fails once CHECK fails.
while_true() {
  local check="$1" status=0
  spawn "${@:2}" </dev/null
  CHILD="${SPAWNED}"
  while [[ -n "${check}" ]] && running "${CHILD}"; do
    "${check}" || { stop_child && return 1; }
    sleep 0.1
  done
  # A signal ends a wait, also one that came before. One that came before the script ignored it ends every wait at once.
  while wait "${CHILD}" || true; running "${CHILD}"; do sleep 0.1; done
  wait "${CHILD}" || status=$?
  kill -s KILL -- "-${CHILD}" 2>/dev/null || true
  CHILD=""
  return "${status}"
}

stop_child() {
  [[ -n "${CHILD}" ]] || return 0
  # Scripts clean up, which takes long on a slow disk.
  stop "-${CHILD}" 60
  CHILD=""
}

# cleanup_on_exit calls the script's function cleanup, with the exit status, once when the
# script exits or gets a signal. Further signals do not interrupt it.
cleanup_on_exit() {
  trap 'leave 129' HUP
  trap 'leave 130' INT
  trap 'leave 141' PIPE
  trap 'leave 143' TERM
  trap 'finish $?' EXIT
}

# leave CODE exits after finish. bash calls no trap for EXIT if a signal arrives when it is about to call that.
leave() {
  finish "$1"
  exit "$1"
}

finish() {
  trap '' HUP INT PIPE TERM
  trap - EXIT
  set +o errexit
  stop_child
  cleanup "$1"
  [[ -n "${WORK}" ]] || return 0
  end_recorded "$1"
  [[ ! -e "${WORK}/cluster" ]] || CLUSTER_DIR="${WORK}/cluster" "${ROOT}/hack/cluster.sh" down
  rm -rf "${WORK}"
}

cleanup() {
  :
}

# processes prints "PID COMMAND ARGUMENT" for each process, from /proc on Linux, as not every
# machine has ps, and from ps with all arguments on other systems.
processes() {
  local file pid command argument
  if [[ -r /proc/self/cmdline ]]; then
    for file in /proc/[0-9]*/cmdline; do
      command="" argument=""
      { IFS= read -r -d '' command && IFS= read -r -d '' argument; } 2>/dev/null <"${file}" || true
      pid="${file#/proc/}"
      echo "${pid%/cmdline} ${command} ${argument}"
    done 2>/dev/null
  else
    ps -axww -o pid= -o command= | sed 's/^ *//'
  fi
}

# lock_owner FILE prints the pid of the script that holds the lock, if it is alive. The pid
# alone is not enough: after a crash another process may get the same number.
lock_owner() {
  local owner
  owner=$(readlink "$1" 2>/dev/null) || return 0
  processes | sed -n "s|^\(${owner%%:*}\) .*${owner#*:}.*|\1|p"
}

# take_lock FILE waits until the lock is free and takes it. The lock is a symbolic link,
# because creating a link and writing its target is one atomic step.
take_lock() {
  local file="$1" link owner waiting="" tries=100
  until ln -s "$$:${0##*/}" "${file}" 2>/dev/null; do
    link=$(readlink "${file}" 2>/dev/null) || link=""
    owner=$(lock_owner "${file}")
    if [[ -n "${owner}" ]]; then
      [[ -n "${waiting}" ]] || say "Waiting for process ${owner}, which also runs ${0##*/}."
      waiting=yes
      sleep 0.5
      continue
    fi
    ((tries-- > 0)) || die "cannot make ${file}"
    # Without a link it was released just now, and may already be another's. Otherwise its owner was killed.
    [[ -z "${link}" || "$(readlink "${file}" 2>/dev/null)" != "${link}" ]] || rm -f "${file}"
    mkdir -p "$(dirname "${file}")"
  done
}

release_lock() {
  [[ "$(readlink "$1" 2>/dev/null)" != "$$:${0##*/}" ]] || rm -f "$1"
}

# The go command compiles a package once for each set of flags. With the same flags
# everywhere the controller, the local control plane and the tests share what they
# compile: most of the controller's packages are in the control plane too.
export CGO_ENABLED=0
GOFLAGS=$(go env GOFLAGS)
[[ " ${GOFLAGS} " == *" -trimpath "* ]] || GOFLAGS="${GOFLAGS:+${GOFLAGS} }-trimpath"
export GOFLAGS

# compiling CMD... is interruptible, and says every 15 seconds that it is not stuck.
compiling() {
  COMPILING_SINCE="${SECONDS}"
  SAID="${SECONDS}"
  while_true still_compiling "$@"
}

still_compiling() {
  ((SECONDS >= SAID + 15)) || return 0
  SAID="${SECONDS}"
  say "    still compiling ($(since "${COMPILING_SINCE}"))"
}

# controller_version prints the description that git gives this tree, as a version that
# the Kubernetes libraries can parse: they panic on any other string. A release gives its own in
# RELEASE_VERSION: its commit may have no tag yet, or more than one.
controller_version() {
  local described
  described=$(git -C "${ROOT}" describe --tags --always --dirty 2>/dev/null) || described=unknown
  case "${RELEASE_VERSION:=${described}}" in
    v[0-9]*.[0-9]*.[0-9]*) echo "${RELEASE_VERSION}" ;;
    *) echo "v0.0.0-g${RELEASE_VERSION}" ;;
  esac
}

controller_ldflags() {
  local package=k8s.io/component-base/version version commit date state=clean
  version=$(controller_version)
  commit=$(git -C "${ROOT}" rev-parse HEAD 2>/dev/null) || commit=unknown
  date=$(git -C "${ROOT}" log -1 --format=%cI 2>/dev/null) || date=1970-01-01T00:00:00Z
  [[ "${version}" != *-dirty ]] || state=dirty
  echo "-X ${package}.gitVersion=${version}" \
    "-X ${package}.gitCommit=${commit}" \
    "-X ${package}.gitTreeState=${state}" \
    "-X ${package}.buildDate=${date}"
}

# build_static FILE [DIR] builds a static binary, byte for byte the same for the same
# commit. GOOS and GOARCH may name another platform, and DIR another copy of the sources.
# (-buildvcs would make the bytes depend on whether there is a .git, so the version is in
# -ldflags.)
build_static() {
  go -C "${2:-${ROOT}}" build -buildvcs=false \
    -ldflags "-s -w $(controller_ldflags)" -o "$1" . || return
  # The image has no dynamic linker. A program that needs one has its path, and file and readelf are not everywhere.
  ! LC_ALL=C grep -qaE '/ld-(linux|musl)' "$1" || die "$1 is linked dynamically"
}

# +drop:release
# build_helm DIR builds helm there.
build_helm() {
  go -C "${ROOT}/hack/tools/helm" build -o "$1/" helm.sh/helm/v4/cmd/helm
}

# write_chart DIR [SOURCES IMAGE] writes the Helm chart of these sources, which installs what their manifests do:
# the value NAME.enabled adds what install-NAME.yaml has beyond install.yaml, policy.enabled the policies.
write_chart() {
  local gojq sources="${2:-${ROOT}}" others='[]' file name values policies
  gojq=$(go -C "${ROOT}" tool -modfile=hack/tools/go.mod -n gojq)
  mkdir -p "$1/crds" "$1/templates"
  cp "${sources}/LICENSE" "${sources}/hack/release/chart/Chart.yaml" "$1/"
  sed -e '/# +drop:/d' -e "s|^image: .*|image: ${3:-sample-controller:latest}|" "${sources}/hack/release/chart/values.yaml" >"$1/values.yaml"
  "${gojq}" --yaml-input . "${sources}/hack/release/chart/values.schema.yaml" >"$1/values.schema.json"
  "${gojq}" --yaml-input --yaml-output 'select(.kind == "CustomResourceDefinition")' "${sources}/artifacts/deploy/install.yaml" >"$1/crds/crds.yaml"
  for file in "${sources}"/artifacts/deploy/install.yaml "${sources}"/artifacts/deploy/install-*.yaml; do
    [[ -e "${file}" ]] || continue
    name="${file##*/install}" && name="${name%.yaml}" && values=".Values${name/#-/.}"
    for policies in false true; do
      {
        echo "{{- if and true ${name:+${values}.enabled} $("${policies}" && echo .Values.policy.enabled) }}"
        "${gojq}" --yaml-input --yaml-output --arg values "${values}" --argjson policies "${policies}" --argjson others "${others}" \
          --from-file "${sources}/hack/release/chart.jq" "${file}" | sed -e "s/'\({{ [^']* }}\)'/\1/"
        echo '{{- end }}'
      } >"$1/templates/install${name}$("${policies}" && echo -policy).yaml"
    done
    [[ -n "${name}" ]] || others=$("${gojq}" --yaml-input --slurp --compact-output 'map([.kind?, .metadata.name?])' "${file}")
  done
}
# +drop:end

# container_tool prints the first of CONTAINER_TOOL, or of docker and podman, that works.
container_tool() {
  local tool
  for tool in ${CONTAINER_TOOL:-docker podman}; do
    # docker without its daemon fails here.
    if command -v "${tool}" >/dev/null && "${tool}" info >/dev/null 2>&1; then
      echo "${tool}"
      return
    fi
  done
  die "neither docker nor podman works here; install one, or name another in CONTAINER_TOOL"
}

# The Dockerfile only copies a file, for which podman has to start no container.
export BUILDAH_ISOLATION=chroot

# container_run TOOL prints the command and flags that run an image.
container_run() {
  # crun fails on machines with cgroups v1 and v2, and podman fails if its default
  # limits are above those of the machine.
  [[ "$1" == *podman ]] && echo "$1 --runtime=runc run --ulimit=nofile=1024 --ulimit=nproc=1000" || echo "$1 run"
}

# make_work NAME makes the directory WORK, for all files of this run. Each process of the run is
# in a group that interruptible ends, or has its process group recorded in WORK/pids:
#
#   WORK/cluster   the cluster, as hack/cluster.sh makes it
#   WORK/bin       programs that the tests use
#   WORK/home      the home directory of the tests' users, with .kube/config
#   WORK/logs      output of the processes in WORK/pids
#   WORK/pids      file NAME holds the process group of a process that a test started
#   WORK/tmp       temporary files of the go command and of the tests
#
# So finish can remove everything. The test binary cannot: after -timeout or a signal it exits
# without running its cleanups.
make_work() {
  cleanup_on_exit
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/sample-controller-$1.XXXXXX")
  # Without symbolic links: hack/cluster.sh finds the processes of a cluster by this path.
  WORK=$(cd "${WORK}" && pwd -P)
  mkdir -p "${WORK}"/{bin,home/.kube,logs,pids,tmp}
  export TMPDIR="${WORK}/tmp"
}

# own_cluster_up starts the cluster. CLUSTER_NODES and CLUSTER_ARGS are documented in
# hack/cluster.sh.
own_cluster_up() {
  # The tests must never change the cluster of the caller.
  unset KUBECONFIG
  export CLUSTER_NAME=own CLUSTER_DIR="${WORK}/cluster"
  interruptible "${ROOT}/hack/cluster.sh" up >/dev/null
  cp "${CLUSTER_DIR}/kubeconfig" "${WORK}/home/.kube/config"
}

# own_kubectl runs with its cache in WORK, not in the home directory of the caller.
own_kubectl() {
  interruptible env HOME="${WORK}/home" "${BIN}/kubectl" --kubeconfig="${WORK}/home/.kube/config" "$@" >/dev/null
}

# install_crds [MANIFESTS...] applies files of artifacts/examples, by default all CRDs, and waits
# until the API server serves the kinds.
install_crds() {
  local manifest
  [[ $# -gt 0 ]] || set -- "${ROOT}"/artifacts/examples/*crd.yaml
  for manifest in "${@##*/}"; do
    cp "${ROOT}/artifacts/examples/${manifest}" "${WORK}/tmp/"
    manifest="${WORK}/tmp/${manifest}"
    # +drop:crontab
    # With a run every 10 seconds a test that waits for some runs of a CronTab would take minutes.
    sed -i.10s "s/\(>= duration('*\)10s/\11s/" "${manifest}"
    # +drop:end
    own_kubectl apply -f "${manifest}"
    # kubectl wait fails while the status has no conditions at all.
    own_kubectl wait --for=jsonpath='{.status.conditions}' -f "${manifest}"
    own_kubectl wait --for=condition=Established -f "${manifest}"
  done
}

# build_programs builds the controller, and replacements for curl and jq, which not every machine has.
build_programs() {
  # A program may have another name than the last element of the module path.
  interruptible go -C "${ROOT}" build -o "${WORK}/bin/sample-controller" .
  interruptible go -C "${ROOT}" build -o "${WORK}/bin/curl" ./test/curl
  interruptible go -C "${ROOT}/hack/tools" build -o "${WORK}/bin/jq" github.com/itchyny/gojq/cmd/gojq
}

# +drop:failover,node
# build_former SETTING COMMIT builds the controller of that commit in WORK/former, and copies its manifests
# there. If the commit or its manifests do not exist, it uses those of this tree, or fails if the variable
# named SETTING is set.
build_former() {
  local tree="${ROOT}"
  mkdir -p "${WORK}/former" "${WORK}/tmp/former"
  if git -C "${ROOT}" cat-file -e "$2:artifacts/deploy/install.yaml" 2>/dev/null; then
    tree="${WORK}/tmp/former"
    say "The former version is that of commit $(git -C "${ROOT}" rev-parse --short "$2^{commit}")."
    git -C "${ROOT}" archive "$2" | tar -x -C "${tree}"
  else
    [[ -z "${!1:-}" ]] || die "$1=${!1} is not a commit with artifacts/deploy/install.yaml"
    say "There is no former commit: the former version is this one."
  fi
  interruptible build_static "${WORK}/former/sample-controller" "${tree}"
  cp "${tree}/artifacts/deploy/install.yaml" "${WORK}/former/"
}
# +drop:end

# +drop:bench,compare
# pause_controllers stops all components of the cluster but the API server and etcd, until it is removed.
pause_controllers() {
  local name
  for name in kube-controller-manager kube-scheduler kwok-controller; do
    kill -s STOP "$(cat "${CLUSTER_DIR}/.kwok/clusters/control-plane/pids/${name}.pid")"
  done
}
# +drop:end

# go_test ARGS... runs `go test`, and ends the processes that the tests left running.
go_test() {
  local status=0
  interruptible env TEST_WORK="${WORK}" go -C "${ROOT}" test -count=1 "$@" || status=$?
  end_recorded "${status}"
  return "${status}"
}

# end_recorded STATUS ends the processes in WORK/pids, and shows their logs if the tests
# failed with that exit status.
end_recorded() {
  local file pid
  for file in "${WORK}"/pids/*; do
    read -r pid 2>/dev/null <"${file}" || continue
    # After a signal the test binary had no chance to stop them.
    if [[ "$1" != 0 && "$1" -lt 128 ]]; then
      say "The test binary left ${file##*/} running. The last lines of its log:"
      tail -n 20 "${WORK}/logs/${file##*/}.log" | indent
    fi
    stop "-${pid}" 10
    rm -f "${file}"
  done
}
