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

# Makes a release twice, from two clones in directories of different names, and fails unless all
# files have the same bytes. The second one has an empty build cache, from which the first could
# not hide a difference, so it takes minutes, and `make verify` leaves it out.
#
#   PLATFORMS   as for hack/release.sh, default all

# shellcheck disable=SC2317 # lib.sh calls cleanup

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# It needs no tag, and is none of a release.
VERSION=v0.0.0-verify
TMP=""

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

# release CLONE makes a release in a new clone of that name.
release() {
  mkdir -p "$(dirname "$1")"
  git clone --quiet --no-hardlinks "${ROOT}" "$1"
  git -C "$1" checkout --quiet --detach "${COMMIT}"
  # The caller's DIR is for one release, here are two.
  interruptible env -u DIR VERSION="${VERSION}" "$1/hack/release.sh"
}

main() {
  local here there
  COMMIT=$(git -C "${ROOT}" rev-parse HEAD)
  [[ -z "$(git -C "${ROOT}" status --porcelain)" ]] ||
    say "NOTE: this is about commit ${COMMIT}; changes in the working tree are not in it"
  cleanup_on_exit
  TMP=$(mktemp -d)
  here="${TMP}/clone" there="${TMP}/another/place/of-the-same-commit"
  release "${here}"
  GOCACHE="${TMP}/cache" release "${there}"
  diff -r "${here}/dist/${VERSION}" "${there}/dist/${VERSION}" ||
    die "these files differ between two releases of commit ${COMMIT}; look for paths, times and the order of files in what writes them"
  cat "${here}/dist/${VERSION}/SHA256SUMS"
  say "Two releases of ${COMMIT} have the same bytes."
}

main "$@"
