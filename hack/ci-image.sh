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

# Runs the image test (make e2e-image) if this machine can run containers. If no container
# tool works, it installs podman from the packages of the distribution, as root or with a
# sudo without a password. If that does not work either, it says that the test was not run,
# and succeeds.
#
#   CONTAINER_TOOL   docker or podman, default the first that works

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TMP=""
# The commands that this script starts do not stop their children.
CHILD_IS_GO=yes

# The tool that may still have the container and the image of the probe.
PROBING=""

cleanup() {
  unprobe
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

# within SECONDS CMD... runs CMD like interruptible, and stops it after so long.
within() {
  local status=0
  spawn "${@:2}" </dev/null
  CHILD="${SPAWNED}"
  if await "${CHILD}" "$1"; then
    wait "${CHILD}" || status=$?
    CHILD=""
    return "${status}"
  fi
  say "stopped after $1 s: ${*:2}"
  stop_child
  return 1
}

# make_probe writes the files of an image that uses nothing of this repository: if it does
# not run, the container tool does not work.
make_probe() {
  printf 'package main\n\nfunc main() { println("It runs.") }\n' >"${TMP}/probe.go"
  printf 'FROM scratch\nCOPY probe /probe\nENTRYPOINT ["/probe"]\n' >"${TMP}/Dockerfile"
  CGO_ENABLED=0 GOOS=linux interruptible go build -o "${TMP}/probe" "${TMP}/probe.go"
}

# probe TOOL builds that image and runs it with the flags of the test. `info` alone succeeds
# on machines whose namespaces or cgroups do not allow containers.
probe() {
  local status=0
  command -v "$1" >/dev/null || { say "$1: not installed"; return 1; }
  PROBING="$1"
  # shellcheck disable=SC2046 # one argument for each
  { within 30 "$1" info >/dev/null &&
    within 120 $(container_build "$1") --tag "$(probe_image)" "${TMP}" &&
    within 60 $(container_run "$1") --name="$(probe_name)" --rm --network=host --read-only --cap-drop=ALL --user=65532 "$(probe_image)"; } || status=$?
  unprobe
  return "${status}"
}

# probe_name prints a name in lower case, as names of images must be.
probe_name() {
  basename "${TMP}" | tr '[:upper:].' '[:lower:]-'
}

probe_image() {
  echo "localhost/$(probe_name):probe"
}

unprobe() {
  [[ -n "${PROBING}" ]] || return 0
  within 30 "${PROBING}" rm --force "$(probe_name)" >/dev/null 2>&1 || true
  within 30 "${PROBING}" rmi --force "$(probe_image)" >/dev/null 2>&1 || true
  PROBING=""
}

# find_tool sets TOOL to the first tool that works, and fails if there is none.
find_tool() {
  for TOOL in ${CONTAINER_TOOL:-docker podman}; do
    if probe "${TOOL}" >"${TMP}/${TOOL##*/}.log" 2>&1; then
      return
    fi
  done
  return 1
}

as_root() {
  if [[ "$(id -u)" == 0 ]]; then
    within 600 "$@"
  else
    within 600 sudo -n "$@"
  fi
}

# install_podman asks no questions, and waits up to two minutes for another apt-get.
install_podman() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 --option=DPkg::Lock::Timeout=120
    --option=Acquire::Retries=2 --option=Acquire::http::Timeout=30
    --option=Dpkg::Options::=--force-confold --option=Dpkg::Use-Pty=0)
  [[ -z "${CONTAINER_TOOL:-}" ]] || { echo "CONTAINER_TOOL names another tool."; return 1; }
  command -v apt-get >/dev/null || { echo "There is no apt-get."; return 1; }
  as_root true || { echo "Neither root nor a sudo without a password."; return 1; }
  # The old package lists may be good enough.
  as_root "${apt[@]}" update || true
  # Users other than root need uidmap.
  as_root "${apt[@]}" install --yes --no-install-recommends podman runc uidmap
}

not_run() {
  local log
  for log in "${TMP}"/*.log; do
    say "${log##*/}:"
    tail -n 5 "${log}" | indent
  done
  echo
  echo "The image test was NOT RUN: neither docker nor podman can run a container here (reasons above)."
  echo "It has NOT passed. Run 'make e2e-image' on a machine that can."
}

main() {
  cleanup_on_exit
  TMP=$(mktemp -d "${TMPDIR:-/tmp}/sample-controller-ci.XXXXXX")
  make_probe
  if ! find_tool; then
    say "No container tool works: installing podman and runc"
    if ! { install_podman >"${TMP}/install.log" 2>&1 && find_tool; }; then
      not_run
      return
    fi
  fi
  say "Running the image test with ${TOOL}"
  rm -rf "${TMP}"
  CONTAINER_TOOL="${TOOL}" exec make --no-print-directory e2e-image
}

main "$@"
