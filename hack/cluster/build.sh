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

# Builds the local control plane into bin/, with the versions that hack/cluster/go.mod
# pins. Binaries that are up to date are not built again.
#
#   hack/cluster/build.sh [BINARY...]     default all but those of a real node
#
#   CLUSTER_VERSION   another minor version of Kubernetes, one of the directories in versions: its API
#                     server, controller-manager and scheduler are built into bin/VERSION

set -o errexit -o nounset -o pipefail

# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

MODULE="${ROOT}/hack/cluster"
if [[ -n "${CLUSTER_VERSION:-}" ]]; then
  MODULE+="/versions/${CLUSTER_VERSION}"
  BIN+="/${CLUSTER_VERSION}"
  [[ -e "${MODULE}/go.mod" ]] || die "CLUSTER_VERSION: there is no ${MODULE}/go.mod"
fi
STAMPS="${BIN}/.stamps"
LOCK="${BIN}/.build.lock"
# What only tests with a kubelet need.
NODE_BINARIES=" crane kubelet kube-proxy "
OUT=""

cleanup() {
  [[ -z "${OUT}" ]] || rm -rf "${OUT}"
  release_lock "${LOCK}"
}

# tool_packages prints the packages of go.mod's tool block.
tool_packages() {
  local line inside=""
  while read -r line; do
    case "${line}" in
      'tool (') inside=yes ;;
      ')') inside="" ;;
      *) [[ -z "${inside}" ]] || echo "${line}" ;;
    esac
  done <"${MODULE}/go.mod"
}

# binary_name PACKAGE is its name in bin/.
binary_name() {
  case "$1" in
    go.etcd.io/etcd/server/v3) echo etcd ;;
    *) echo "${1##*/}" ;;
  esac
}

# built_name PACKAGE is the name that `go build` gives it.
built_name() {
  case "$1" in
    go.etcd.io/etcd/server/v3) echo server ;;
    *) echo "${1##*/}" ;;
  esac
}

# fingerprint prints a hash of everything that the binaries depend on. git computes it,
# because every machine with this repository has git.
fingerprint() {
  { go -C "${MODULE}" version && cat "${MODULE}/go.mod" "${MODULE}/go.sum" "${BASH_SOURCE[0]}"; } |
    git hash-object --stdin
}

up_to_date() {
  local name="$1" want="$2" have=""
  [[ -x "${BIN}/${name}" && -f "${STAMPS}/${name}" ]] || return 1
  read -r have <"${STAMPS}/${name}" || true
  [[ "${have}" == "${want}" ]]
}

# outdated_packages FINGERPRINT NAME... prints the packages of the binaries NAME... that have
# to be built.
outdated_packages() {
  local want="$1" package name wanted
  shift
  for package in $(tool_packages); do
    name=$(binary_name "${package}")
    for wanted in "$@"; do
      if [[ "${wanted}" == "${name}" ]] && ! up_to_date "${name}" "${want}"; then
        echo "${package}"
      fi
    done
  done
}

binary_names() {
  local package
  for package in "$@"; do
    binary_name "${package}"
  done
}

known_names() {
  # shellcheck disable=SC2046 # one package a word
  binary_names $(tool_packages)
}

check_names() {
  local known name
  known=" $(known_names | tr '\n' ' ') "
  for name in "$@"; do
    [[ "${known}" == *" ${name} "* ]] || die "no binary ${name}: there are${known}"
  done
}

# version_ldflags sets the variables that the Kubernetes release scripts set. The module
# proxy does not know the commit, so gitCommit is the tag.
version_ldflags() {
  local version date major minor package flags="-s -w"
  # Only the downloaded module has the date.
  go -C "${MODULE}" mod download k8s.io/kubernetes
  version=$(go -C "${MODULE}" list -m -f '{{.Version}}' k8s.io/kubernetes)
  date=$(go -C "${MODULE}" list -m \
    -f '{{with .Time}}{{.UTC.Format "2006-01-02T15:04:05Z"}}{{end}}' k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${version#v}"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X ${package}.gitVersion=${version}"
    flags+=" -X ${package}.gitMajor=${major}"
    flags+=" -X ${package}.gitMinor=${minor}"
    flags+=" -X ${package}.gitCommit=${version}"
    flags+=" -X ${package}.gitTreeState=clean"
    flags+=" -X ${package}.buildDate=${date:-1970-01-01T00:00:00Z}"
  done
  echo "${flags}"
}

# on_compiling START prints the binaries of BUILDING that have appeared in OUT since the
# last call.
BUILDING=()
REPORTED=" "
on_compiling() {
  local package name
  for package in "${BUILDING[@]}"; do
    name=$(binary_name "${package}")
    if [[ -e "${OUT}/$(built_name "${package}")" && "${REPORTED}" != *" ${name} "* ]]; then
      REPORTED+="${name} "
      say "    ${name} ($(since "$1"))"
    fi
  done
}

# compile PACKAGE... builds into OUT, with one go command: it compiles the packages that the
# binaries share once, and keeps all cores busy.
compile() {
  local ldflags
  BUILDING=("$@")
  ldflags=$(version_ldflags)
  # go leaves its temporary files behind when it is stopped.
  mkdir "${OUT}/tmp"
  export GOTMPDIR="${OUT}/tmp"
  # The control plane runs here, also if the caller builds for another platform.
  unset GOOS GOARCH
  compiling go -C "${MODULE}" build -o "${OUT}/" -ldflags "${ldflags}" "$@"
}

# install_binaries FINGERPRINT PACKAGE... renames the binaries into bin/, so that a process
# never starts a half-written file.
install_binaries() {
  local want="$1" package name
  shift
  mkdir -p "${STAMPS}"
  for package in "$@"; do
    name=$(binary_name "${package}")
    mv -f "${OUT}/$(built_name "${package}")" "${BIN}/${name}"
    echo "${want}" >"${OUT}/stamp"
    mv -f "${OUT}/stamp" "${STAMPS}/${name}"
  done
}

main() {
  local want start packages name
  if [[ $# -eq 0 ]]; then
    for name in $(known_names); do
      [[ "${NODE_BINARIES}" == *" ${name} "* ]] || set -- "$@" "${name}"
    done
  fi
  check_names "$@"
  want=$(fingerprint)
  [[ -n "$(outdated_packages "${want}" "$@")" ]] || return 0

  cleanup_on_exit
  mkdir -p "${BIN}"
  take_lock "${LOCK}"
  # Another build may have done the work while this one waited.
  packages=$(outdated_packages "${want}" "$@")
  [[ -n "${packages}" ]] || return 0

  # shellcheck disable=SC2086 # one package a word
  say "Building into ${BIN#"${ROOT}/"}/, from ${MODULE#"${ROOT}/"}/go.mod: $(binary_names ${packages} | tr '\n' ' ')"
  say "The first build downloads and compiles everything, which takes up to 10 minutes on 2 cores."
  start=$(now)
  # Left by a build that was killed, whose compilers may still be running.
  rm -rf "${BIN}"/.build.?????? 2>/dev/null || true
  OUT=$(mktemp -d "${BIN}/.build.XXXXXX")
  # shellcheck disable=SC2086 # one package a word
  compile ${packages} || die "the build of the control plane failed"
  # shellcheck disable=SC2086
  install_binaries "${want}" ${packages}
  say "Built in $(since "${start}")."
}

main "$@"
