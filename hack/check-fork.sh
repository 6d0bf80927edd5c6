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
# build tags, and that the tests pass of the root package, of hack, and of what converts between
# versions.
#
#   hack/check-fork.sh                 a fork with everything dropped and one with nothing
#   hack/check-fork.sh NAME=VALUE...   the fork with these variables of `make fork`
#   hack/check-fork.sh --random SEED   a fork with names and parts that follow from the number
#
#   FULL=1   also that generating again changes nothing, that linters find nothing, and that all
#            unit tests pass, without the race detector

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"

TMP=""
PICKED=""

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

# step TITLE CMD... says how long CMD took.
step() {
  local title="$1" start
  shift
  start=$(now)
  interruptible "$@" || die "${title} failed after $(since "${start}")"
  say "    ${title} ($(since "${start}"))"
}

# unchanged fails if the working tree differs from the commit.
unchanged() {
  git status --short
  [[ -z "$(git status --porcelain)" ]]
}

# verify_fork NAME=VALUE... makes a fork with these variables, compiles it and tests it.
verify_fork() {
  local tags
  say "==> $*"
  rm -rf "${TMP}/fork"
  step fork env DIR="${TMP}/fork" MODULE=github.com/acme/widgets GROUP=widgets.acme.io VERSION=v1 KIND=Widget \
    "$@" "${TMP}/make-fork"
  cd "${TMP}/fork"
  tags=$(sed -n 's/^TAGS=//p' hack/lint.sh)
  step vet go vet -tags "${tags}" ./...
  if [[ -n "${FULL:-}" ]]; then
    step generate make --no-print-directory generate
    unchanged || die "generating again changed the fork"
    step lint hack/lint.sh
    step unit go test ./...
  else
    step unit go test ./...
  fi
  cd "${ROOT}"
}

# pick VALUE... sets PICKED to one of the values. A subshell would not advance RANDOM.
pick() {
  PICKED="${*:RANDOM % $# + 1:1}"
}

# random_fork SEED verifies a fork.
random_fork() {
  local variables=() drop="" part
  RANDOM="$1"
  pick Class Mapping HTTPRoute Foo2 Goose Policy Cluster Client Image Queue VM S3Bucket Database Gateway Index Worker Proxy Bus Node2Pool UserAccount
  variables+=("KIND=${PICKED}")
  case "${PICKED}" in
    Goose) variables+=(PLURAL=geese) ;;
    Index) variables+=(PLURAL=indices) ;;
  esac
  pick widgets my-net2 a1 x-y-z acme compute
  variables+=("GROUP=${PICKED}.$((RANDOM % 100))-acme.io")
  pick v1 v1beta1 v1alpha1 v2 v3alpha2 v2beta3
  variables+=("VERSION=${PICKED}")
  pick github.com/acme/widgets git.acme.io/infra.tools/my.operator/v2 gitlab.com/a/b/web_op-x example.org/x1/v3
  variables+=("MODULE=${PICKED}")
  pick SHORT= SHORT=w2 SHORT=wd,wdg
  variables+=("${PICKED}")
  pick PROGRAM= PROGRAM=op PROGRAM=my-big-operator2
  variables+=("${PICKED}")
  for part in ${PARTS//,/ }; do
    ((RANDOM % 2)) || drop+=",${part}"
  done
  verify_fork "${variables[@]}" "DROP=${drop#,}"
}

cleanup_on_exit
TMP=$(mktemp -d)
TMP=$(cd "${TMP}" && pwd -P)
# A machine of CI may have no name for commits.
export GIT_AUTHOR_NAME=check GIT_AUTHOR_EMAIL=check@localhost GIT_COMMITTER_NAME=check GIT_COMMITTER_EMAIL=check@localhost
export CODEGEN_GOBIN="${BIN}/codegen"
CHILD_IS_GO=yes
interruptible go build -o "${TMP}/make-fork" ./hack/fork
PARTS=$(find artifacts/examples -name '*-crd.yaml' | sed 's|.*/\(.*\)-crd.yaml|\1|' | tr '\n' ',')webhooks
case "${1:-}" in
  '')
    verify_fork DROP="${PARTS}"
    verify_fork MODULE=github.com/acme/fork-check/v2 GROUP=my-checks.acme.io VERSION=v1beta1 KIND=Goose PLURAL=geese
    ;;
  --random) random_fork "${2:-${RANDOM}}" ;;
  *) verify_fork "$@" ;;
esac
