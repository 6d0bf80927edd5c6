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

# Makes forks as docs/fork.md describes, and checks that they compile, with the tests of all
# build tags, and that their tests of the root package and of hack pass.
#
#   hack/check-fork.sh                 a fork with everything dropped and one with nothing
#   hack/check-fork.sh NAME=VALUE...   the fork with these variables of `make fork`

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"

TMP=""

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

# verify_fork NAME=VALUE... makes a fork with these variables, compiles it and tests it.
verify_fork() {
  local tags
  rm -rf "${TMP}/fork"
  interruptible env DIR="${TMP}/fork" MODULE=github.com/acme/widgets GROUP=widgets.acme.io VERSION=v1 KIND=Widget \
    "$@" "${TMP}/make-fork"
  tags=$(sed -n 's/^TAGS=//p' "${TMP}/fork/hack/lint.sh")
  interruptible go -C "${TMP}/fork" vet -tags "${tags}" ./...
  interruptible go -C "${TMP}/fork" test . ./hack/...
}

cleanup_on_exit
TMP=$(mktemp -d)
TMP=$(cd "${TMP}" && pwd -P)
# A machine of CI may have no name for commits.
export GIT_AUTHOR_NAME=check GIT_AUTHOR_EMAIL=check@localhost GIT_COMMITTER_NAME=check GIT_COMMITTER_EMAIL=check@localhost
CHILD_IS_GO=yes
interruptible go build -o "${TMP}/make-fork" ./hack/fork
if (($# > 0)); then
  verify_fork "$@"
  exit
fi
drop=$(find artifacts/examples -name '*-crd.yaml' | sed 's|.*/\(.*\)-crd.yaml|\1|' | tr '\n' ',')webhooks
verify_fork DROP="${drop}"
verify_fork MODULE=github.com/acme/fork-check/v2 GROUP=my-checks.acme.io VERSION=v1beta1 KIND=Goose PLURAL=geese
