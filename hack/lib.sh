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
# The caller's kubectl preferences could change flags and aliases.
export KUBERC=off

# --- Messages ---------------------------------------------------------------

# Progress goes to stderr, so that a caller can read the result from stdout.
say() {
  printf '%s\n' "$*" >&2
}

die() {
  say "ERROR: $*"
  exit 1
}

indent() {
  local line
  while IFS= read -r line || [[ -n "${line}" ]]; do
    say "    ${line}"
  done
}

# now prints the time in milliseconds, with bash before 5 rounded to seconds.
now() {
  local micros="${EPOCHREALTIME:-}"
  if [[ -n "${micros}" ]]; then
    # The decimal separator depends on the locale.
    micros="${micros//[!0-9]/}"
    echo $((micros / 1000))
  else
    echo $(($(date +%s) * 1000))
  fi
}

# since START prints the time since START in seconds.
since() {
  local ms=$(($(now) - $1))
  echo "$((ms / 1000)).$((ms % 1000 / 100)) s"
}

# print_make_help MAKEFILE lists the targets with a `##` comment, below the
# headings (`##@`).
print_make_help() {
  local line target
  printf 'Usage: make TARGET\n'
  while IFS= read -r line; do
    case "${line}" in
      '##@ '*) printf '\n%s\n' "${line#'##@ '}" ;;
      [a-z]*:*'## '*)
        target="${line%%:*}"
        printf '  %-18s %s\n' "${target}" "${line#*'## '}"
        ;;
    esac
  done <"$1"
}

# --- Processes --------------------------------------------------------------
#
# A terminal sends Ctrl-C to its whole foreground process group, and bash delays its traps
# until the command in the foreground has ended. So a command that takes longer than a
# moment runs in its own process group while the shell is in `wait`. Only the script gets
# the signal, without delay, and stops its children in the right order.

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

# The process that the script waits for, and whether stop_child signals its whole process
# group: go does not stop its compilers, our scripts stop their children.
CHILD=""
CHILD_IS_GO=""

# interruptible CMD... runs CMD. A signal to the script ends the wait and stops CMD.
interruptible() {
  local status=0
  spawn "$@" </dev/null
  CHILD="${SPAWNED}"
  wait "${CHILD}" || status=$?
  CHILD=""
  return "${status}"
}

stop_child() {
  local target="${CHILD}"
  [[ -n "${CHILD}" ]] || return 0
  [[ -z "${CHILD_IS_GO}" ]] || target="-${CHILD}"
  # Otherwise bash reports that it was terminated.
  disown "${CHILD}" 2>/dev/null || true
  kill -s TERM -- "${target}" 2>/dev/null || true
  # Scripts clean up, which takes long on a slow disk.
  await "${target}" 60 || true
  # go exits without waiting for its linker.
  kill -s KILL -- "-${CHILD}" 2>/dev/null || true
  CHILD=""
}

# cleanup_on_exit calls the script's function cleanup, with the exit status, once when the
# script exits or gets a signal. Further signals do not interrupt it.
cleanup_on_exit() {
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 141' PIPE
  trap 'exit 143' TERM
  trap 'finish $?' EXIT
}

finish() {
  trap '' HUP INT PIPE TERM
  set +o errexit
  stop_child
  cleanup "$1"
}

# command_line PID prints the command line of the process, from /proc on Linux and from ps
# on other systems.
command_line() {
  local word
  if [[ -r /proc/self/cmdline ]]; then
    { while IFS= read -r -d '' word; do printf '%s ' "${word}"; done; } \
      2>/dev/null <"/proc/$1/cmdline" || true
  else
    ps -ww -o command= -p "$1" 2>/dev/null || true
  fi
}

# --- Locks ------------------------------------------------------------------

# lock_owner FILE prints the pid of the script that holds the lock, if it is alive. The pid
# alone is not enough: after a crash another process may get the same number.
lock_owner() {
  local owner script pid
  owner=$(readlink "$1" 2>/dev/null) || return 0
  pid="${owner%%:*}"
  script="${owner#*:}"
  case "$(command_line "${pid}")" in
    *"${script}"*) echo "${pid}" ;;
  esac
}

# take_lock FILE waits until the lock is free and takes it. The lock is a symbolic link,
# because creating a link and writing its target is one atomic step.
take_lock() {
  local file="$1" link owner waiting="" tries=100
  until ln -s "$$:${0##*/}" "${file}" 2>/dev/null; do
    link=$(readlink "${file}" 2>/dev/null) || link=""
    owner=$(lock_owner "${file}")
    if [[ -z "${owner}" ]]; then
      ((tries-- > 0)) || die "cannot make ${file}"
      # Without a link it was released just now, and may already be another's. Otherwise its owner was killed.
      [[ -z "${link}" || "$(readlink "${file}" 2>/dev/null)" != "${link}" ]] || rm -f "${file}"
      mkdir -p "$(dirname "${file}")"
      continue
    fi
    if [[ -z "${waiting}" ]]; then
      waiting=yes
      say "Waiting for process ${owner}, which also runs ${0##*/}."
    fi
    sleep 0.5
  done
}

release_lock() {
  local owner
  owner=$(readlink "$1" 2>/dev/null) || return 0
  [[ "${owner}" != "$$:${0##*/}" ]] || rm -f "$1"
}

# --- Builds -----------------------------------------------------------------

# The go command compiles a package once for each set of flags. With the same flags
# everywhere the controller, the local control plane and the tests share what they
# compile: most of the controller's packages are in the control plane too.
export CGO_ENABLED=0
GOFLAGS=$(go env GOFLAGS)
[[ " ${GOFLAGS} " == *" -trimpath "* ]] || GOFLAGS="${GOFLAGS:+${GOFLAGS} }-trimpath"
export GOFLAGS

# compiling CMD... is interruptible for a command that builds with go, and says every
# 15 seconds that it is not stuck. A function on_compiling is called with the start
# time while it runs and once after.
compiling() {
  local start status=0 said=0
  start=$(now)
  CHILD_IS_GO=yes
  spawn "$@" </dev/null
  CHILD="${SPAWNED}"
  while running "${CHILD}"; do
    sleep 0.2
    [[ "$(type -t on_compiling)" != function ]] || on_compiling "${start}"
    if (($(now) - start >= said + 15000)); then
      said=$(($(now) - start))
      say "    still compiling ($(since "${start}"))"
    fi
  done
  wait "${CHILD}" || status=$?
  CHILD=""
  CHILD_IS_GO=""
  [[ "$(type -t on_compiling)" != function ]] || on_compiling "${start}"
  return "${status}"
}

# controller_version prints the description that git gives this tree, as a version that
# the Kubernetes libraries can parse: they panic on any other string. A release gives its own in
# RELEASE_VERSION: its commit may have no tag yet, or more than one.
controller_version() {
  local described
  if [[ -n "${RELEASE_VERSION:-}" ]]; then
    echo "${RELEASE_VERSION}"
    return
  fi
  described=$(git -C "${ROOT}" describe --tags --always --dirty 2>/dev/null) || described=unknown
  case "${described}" in
    v[0-9]*.[0-9]*.[0-9]*) echo "${described}" ;;
    *) echo "v0.0.0-g${described}" ;;
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
    -ldflags "-s -w $(controller_ldflags)" -o "$1" .
}

# +drop:release
# build_helm DIR builds helm there.
build_helm() {
  go -C "${ROOT}/hack/tools/helm" build -o "$1/" helm.sh/helm/v4/cmd/helm
}

# write_chart DIR [SOURCES IMAGE] writes the Helm chart of these sources, which installs what their manifests do:
# the value NAME.enabled adds what install-NAME.yaml has beyond install.yaml.
write_chart() {
  local gojq sources="${2:-${ROOT}}" base file name
  gojq=$(go -C "${ROOT}" tool -modfile=hack/tools/go.mod -n gojq)
  template() { # values, objects of other templates, manifest
    "${gojq}" --yaml-input --yaml-output --arg values "$1" --argjson others "$2" --from-file "${sources}/hack/release/chart.jq" "$3" | sed -e "s/'\({{ [^']* }}\)'/\1/"
  }
  mkdir -p "$1/crds" "$1/templates"
  cp "${sources}/LICENSE" "${sources}/hack/release/chart/Chart.yaml" "$1/"
  sed -e '/# +drop:/d' -e "s|^image: .*|image: ${3:-sample-controller:latest}|" "${sources}/hack/release/chart/values.yaml" >"$1/values.yaml"
  "${gojq}" --yaml-input . "${sources}/hack/release/chart/values.schema.yaml" >"$1/values.schema.json"
  "${gojq}" --yaml-input --yaml-output 'select(.kind == "CustomResourceDefinition")' "${sources}/artifacts/deploy/install.yaml" >"$1/crds/crds.yaml"
  template .Values '[]' "${sources}/artifacts/deploy/install.yaml" >"$1/templates/install.yaml"
  base=$("${gojq}" --yaml-input --slurp --compact-output 'map([.kind?, .metadata.name?])' "${sources}/artifacts/deploy/install.yaml")
  for file in "${sources}"/artifacts/deploy/install-*.yaml; do
    name="${file##*/install-}" && name="${name%.yaml}"
    [[ ! -e "${file}" ]] || { echo "{{- if .Values.${name}.enabled }}" && template ".Values.${name}" "${base}" "${file}" && echo '{{- end }}'; } >"$1/templates/${name}.yaml"
  done
}
# +drop:end

build_controller() {
  build_static "${BIN}/sample-controller"
}

# --- Containers -------------------------------------------------------------

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

# container_build TOOL prints the command and flags that build an image, and
# container_run TOOL those that run one.
container_build() {
  case "$1" in
    # The Dockerfile only copies a file, for which no container has to be started.
    *podman) echo "$1 build --isolation=chroot" ;;
    *) echo "$1 build" ;;
  esac
}

container_run() {
  case "$1" in
    # crun fails on machines with cgroups v1 and v2, and podman fails if its default
    # limits are above those of the machine.
    *podman) echo "$1 --runtime=runc run --ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000" ;;
    *) echo "$1 run" ;;
  esac
}
