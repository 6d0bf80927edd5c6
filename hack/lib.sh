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

# What the scripts in hack/ share. To be sourced after `set -o errexit -o
# nounset -o pipefail`. Runs on bash 3.2 (macOS) and needs no more than
# coreutils, git and Go.

# shellcheck disable=SC2034 # the variables are for those who source this file

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BIN="${ROOT}/bin"

# The versions that this repository pins count, whatever workspace lies above.
export GOWORK=off
# What kubectl does here must not depend on the caller's preferences.
export KUBERC=off

# --- Messages ---------------------------------------------------------------

# Progress goes to stderr: stdout is for what a caller may want to read.
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

# now prints milliseconds (whole seconds before bash 5, which has no clock of
# its own).
now() {
  local micros="${EPOCHREALTIME:-}"
  if [[ -n "${micros}" ]]; then
    # The decimal separator is the locale's.
    micros="${micros//[!0-9]/}"
    echo $((micros / 1000))
  else
    echo $(($(date +%s) * 1000))
  fi
}

# since START says how long ago that was.
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
        printf '  %-14s %s\n' "${target}" "${line#*'## '}"
        ;;
    esac
  done <"$1"
}

# --- Processes --------------------------------------------------------------
#
# A terminal sends Ctrl-C to its whole foreground process group, and bash holds
# its own traps back until the command in the foreground has ended. So whatever
# takes longer than a moment runs in a process group of its own while the shell
# sits in `wait`: the script alone hears the signal, at once, and stops what it
# started in the order that is right.

# spawn CMD... starts CMD in a process group of its own; SPAWNED is its pid.
spawn() {
  set -m
  "$@" &
  set +m
  SPAWNED=$!
}

# running PID, or -PID for a process group.
running() {
  kill -0 -- "$1" 2>/dev/null
}

# await PID SECONDS is true once the process (-PID: the group) is gone.
await() {
  local tries=$(($2 * 10))
  while running "$1"; do
    ((tries-- > 0)) || return 1
    sleep 0.1
  done
}

# The command that the script is waiting for, and whether its whole group has to
# be told to stop: go does not stop its compilers, our scripts stop theirs.
CHILD=""
CHILD_IS_GO=""

# interruptible CMD... is CMD, but a signal ends the wait, and CMD with it.
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
  # They clean up; a minute is for the slowest of disks.
  await "${target}" 60 || true
  # go does not wait for its linker.
  kill -s KILL -- "-${CHILD}" 2>/dev/null || true
  CHILD=""
}

# cleanup_on_exit makes the script's cleanup function run once, however the
# script ends, and to the end, whatever signals follow. Its argument is the
# exit status.
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

# command_line PID prints what the process was started as. There is /proc on
# Linux, and ps on every other system.
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

# lock_owner FILE prints the pid of the live script that holds the lock. A pid
# alone proves nothing: after a crash the number may be a stranger's.
lock_owner() {
  local owner script pid
  owner=$(readlink "$1" 2>/dev/null) || return 0
  pid="${owner%%:*}"
  script="${owner#*:}"
  case "$(command_line "${pid}")" in
    *"${script}"*) echo "${pid}" ;;
  esac
}

# take_lock FILE waits for its turn. A symbolic link is made in one step
# together with what it says, which no directory or file can claim.
take_lock() {
  local file="$1" owner waiting="" tries=100
  until ln -s "$$:${0##*/}" "${file}" 2>/dev/null; do
    owner=$(lock_owner "${file}")
    if [[ -z "${owner}" ]]; then
      # Left behind by a process that was killed.
      ((tries-- > 0)) || die "cannot make ${file}"
      rm -f "${file}"
      mkdir -p "$(dirname "${file}")"
      continue
    fi
    if [[ -z "${waiting}" ]]; then
      waiting=yes
      say "Waiting for ${0##*/} (process ${owner}), which is at the same thing."
    fi
    sleep 0.5
  done
}

release_lock() {
  local owner
  owner=$(readlink "$1" 2>/dev/null) || return 0
  [[ "${owner}" != "$$:${0##*/}" ]] || rm -f "$1"
}

# --- The controller's binary ------------------------------------------------

# controller_version prints what git calls this tree, as a version that
# Kubernetes libraries can parse: they panic on anything else.
controller_version() {
  local described
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

# build_static FILE [DIR] builds the program so that it needs nothing but a kernel, and
# the same commit always gives the same bytes. GOOS and GOARCH may name another system,
# and DIR another place with the same sources. (What go itself would tell of git depends
# on whether there is a .git; ours is in the flags.)
build_static() {
  CGO_ENABLED=0 go -C "${2:-${ROOT}}" build -trimpath -buildvcs=false \
    -ldflags "-s -w $(controller_ldflags)" -o "$1" .
}

build_controller() {
  build_static "${BIN}/sample-controller"
}

# --- Containers -------------------------------------------------------------

# container_tool prints the name of the one that works here: CONTAINER_TOOL, or else
# docker or podman.
container_tool() {
  local tool
  for tool in ${CONTAINER_TOOL:-docker podman}; do
    # A client without its daemon is none.
    if command -v "${tool}" >/dev/null && "${tool}" info >/dev/null 2>&1; then
      echo "${tool}"
      return
    fi
  done
  die "neither docker nor podman works here; install one, or name another in CONTAINER_TOOL"
}

# container_build TOOL prints the words with which it builds an image, and
# container_run TOOL those with which it runs one.
container_build() {
  case "$1" in
    # It starts no container to copy one file.
    *podman) echo "$1 build --isolation=chroot" ;;
    *) echo "$1 build" ;;
  esac
}

container_run() {
  case "$1" in
    # crun fails where control groups are of both kinds, and a machine's own limits
    # may be below podman's defaults.
    *podman) echo "$1 --runtime=runc run --ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000" ;;
    *) echo "$1 run" ;;
  esac
}
