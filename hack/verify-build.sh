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

# Fails unless two builds of the release binary, in directories of different names, give the
# same bytes, and the binary is static. By default it builds for the processor of this machine with
# the shared build cache, which takes seconds. Releases are built with the toolchain in go.mod.
#
#   FULL=1   for amd64 and arm64, the second time with an empty cache (minutes)
#   ARCH     only for this processor

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TMP=""
CHILD_IS_GO=yes

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

# copy_sources DIR copies the sources of the program, without .git.
copy_sources() {
  mkdir -p "$1"
  (cd "${ROOT}" && tar -cf - go.mod go.sum ./*.go pkg) | tar -xf - -C "$1"
}

# tell MESSAGE... prints the progress of a full run, which takes minutes.
tell() {
  [[ -z "${FULL:-}" ]] || say "$*"
}

# same_twice ARCH builds in both directories and compares the bytes.
same_twice() {
  local begun here="${TMP}/here-$1" there="${TMP}/there-$1"
  export GOOS=linux GOARCH="$1"
  begun=$(now)
  interruptible build_static "${here}"
  tell "Built for $1 ($(since "${begun}"))"
  begun=$(now)
  if [[ -n "${FULL:-}" ]]; then
    GOCACHE="${TMP}/cache" interruptible build_static "${there}" "${TMP}/another/place"
  else
    interruptible build_static "${there}" "${TMP}/another/place"
  fi
  tell "Built for $1 elsewhere ($(since "${begun}"))"
  cmp "${here}" "${there}" ||
    die "a build for $1 in another directory has other bytes; look for paths and times in controller_ldflags (hack/lib.sh)"
  unset GOOS GOARCH
  "${TMP}/static" "${here}" "$1"
}

# note_toolchain says if this is another Go than the toolchain in go.mod, with which releases are
# built: with GOTOOLCHAIN=local an older one works, and a newer one always does.
note_toolchain() {
  local want have
  want=$(sed -n 's/^toolchain //p' "${ROOT}/go.mod")
  have=$(go -C "${ROOT}" env GOVERSION)
  [[ "${have}" == "${want}" ]] || say "NOTE: this is ${have}; the same bytes as others get takes ${want} (GOTOOLCHAIN=${want})"
}

main() {
  local arch archs
  archs=$(go env GOARCH)
  [[ -z "${FULL:-}" ]] || archs="amd64 arm64"
  archs="${ARCH:-${archs}}"
  note_toolchain
  cleanup_on_exit
  TMP=$(mktemp -d)
  copy_sources "${TMP}/another/place"
  interruptible go -C "${ROOT}" build -o "${TMP}/static" ./hack/static
  for arch in ${archs}; do
    same_twice "${arch}"
  done
}

main "$@"
