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

# Builds the image from the static binary, which needs no network, or pushes it.
#
#   hack/image.sh IMG
#   hack/image.sh --push IMG
#
#   CONTAINER_TOOL   docker or podman, default the first that works
#   ARCH             amd64 or arm64, default this machine's

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TMP=""

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

main() {
  local push="" image tool arch
  [[ "${1:-}" != --push ]] || push=yes
  image="${!#}"
  [[ $# -gt 0 && -n "${image}" && "${image}" != --push ]] || die "IMG is not set; give IMG=registry.example.com/sample-controller:TAG"
  cleanup_on_exit
  tool=$(container_tool)
  if [[ -n "${push}" ]]; then
    interruptible "${tool}" push "${image}"
    return
  fi
  arch="${ARCH:-$(go env GOARCH)}"
  TMP=$(mktemp -d)
  say "Building the binary for linux/${arch}"
  GOOS=linux GOARCH="${arch}" build_static "${TMP}/sample-controller"
  say "Building ${image} with ${tool}"
  # shellcheck disable=SC2046 # one argument for each
  interruptible $(container_build "${tool}") --platform "linux/${arch}" --file "${ROOT}/Dockerfile" --tag "${image}" "${TMP}"
  echo "${image}"
}

main "$@"
