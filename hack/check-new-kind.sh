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

# Adds kinds with `make new-kind` to a copy of the repository, side by side, and checks that what
# it writes is complete: contracts, headers and manifests, vet and lint, and the unit tests, of
# which one must fail without the comparison, the owner check, the condition or the finalizer.
#
#   hack/check-new-kind.sh                a kind for each one that can be owned, and one with
#                                         EXTERNAL=yes
#   hack/check-new-kind.sh Job External   only these
#   FULL=1                                also on clusters: the end-to-end tests of every kind, a part
#                                         of the faults, and all faults for ConfigMap and External

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TMP=""
CHILD_IS_GO=yes

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

# tell MESSAGE... prints a headline.
tell() {
  say "==> $*"
}

# copy copies the repository with what was built for it.
copy() {
  local built
  (cd "${ROOT}" && tar --exclude=./.git --exclude=./bin --exclude=./.cluster -cf - .) | tar -xf - -C "${TMP}"
  mkdir -p "${ROOT}/bin/codegen" "${TMP}/bin"
  for built in "${ROOT}"/bin/* "${ROOT}/bin/.stamps"; do
    [[ ! -e "${built}" ]] || ln -s "${built}" "${TMP}/bin/"
  done
}

# add NAME adds the kind CheckNAME.
add() {
  local owns="$1" external=""
  [[ "$1" != External ]] || { owns=ConfigMap && external=yes; }
  interruptible make new-kind GROUP="$(lower "$1").example.org" VERSION=v1alpha1 KIND="Check$1" OWNS="${owns}" EXTERNAL="${external}" >"${TMP}/log" 2>&1 || {
    cat "${TMP}/log" >&2
    die "make new-kind failed for $1"
  }
}

lower() {
  tr '[:upper:]' '[:lower:]' <<<"$1"
}

# mutate NAME FILE COMMAND fails if all tests of the kind pass after that sed command.
mutate() {
  local dir file
  dir="pkg/controller/check$(lower "$1")"
  file="${dir}/$2"
  sed -i.whole -e "$3" "${file}"
  ! cmp -s "${file}" "${file}.whole" || die "$1: ${file} has no line for ${3}"
  go vet "./${dir}" || die "$1: ${file} does not compile after ${3}"
  ! go test "./${dir}" >"${TMP}/log" 2>&1 || die "$1: all tests pass after ${3} in ${file}"
  say "    $1: after ${3} in $2 fails$(sed -n 's/^ *--- FAIL: \([^(]*\).*/ \1/p' "${TMP}/log" | head -n 2 | tail -n 1)"
  mv "${file}.whole" "${file}"
}

# mutate_all NAME removes in turn what no kind may lose.
mutate_all() {
  local decisions
  decisions="check$(lower "$1").go"
  mutate "$1" "${decisions}" 's/return decision{patch: .*/return decision{}/'
  mutate "$1" "${decisions}" 's/return controller.IsControlledBy(.*/return true/'
  mutate "$1" status.go '/^	controller.SetReady(/d'
  [[ "$1" != External ]] || mutate "$1" external.go 's/return slices.Contains(.*Finalizers, finalizer)/return true/'
}

# run_all NAMES... tests the kinds on clusters.
run_all() {
  local kinds
  kinds=$(printf '|Check%s' "$@")
  kinds="${kinds#|}"
  tell "End-to-end tests"
  hack/e2e.sh -run '^Test(EveryKind|EveryRightIsMissed|WalkthroughCheck.*)$'
  tell "A part of the faults"
  FAULTS=part hack/faults.sh -run "TestFaults/^(${kinds}):"
  tell "All faults for ConfigMap and External"
  hack/faults.sh -run 'TestFaults/^Check(ConfigMap|External):'
}

main() {
  local name packages=()
  cleanup_on_exit
  TMP=$(mktemp -d)
  TMP=$(cd "${TMP}" && pwd -P)
  copy
  cd "${TMP}"
  if (($# == 0)); then
    for name in hack/new-kind/templates/owned/[A-Z]*.tmpl; do
      set -- "$@" "$(basename "${name}" .tmpl)"
    done
    set -- "$@" External
  fi
  for name in "$@"; do
    tell "make new-kind for ${name}"
    add "${name}"
    packages+=("./pkg/controller/check$(lower "${name}")")
  done
  tell "Contracts, headers, manifests, vet and lint"
  for name in contract boilerplate codegen manifests; do
    "hack/verify-${name}.sh"
  done
  hack/lint.sh
  tell "Unit tests"
  CGO_ENABLED=1 KUBE_CACHE_MUTATION_DETECTOR=true interruptible go test -race "${packages[@]}" ./test/kinds
  interruptible go test -run '^Test(Suites|OperationsDoc|Manifests)' .
  tell "Tests that must fail"
  for name in "$@"; do
    mutate_all "${name}"
  done
  [[ -z "${FULL:-}" ]] || run_all "$@"
}

main "$@"
