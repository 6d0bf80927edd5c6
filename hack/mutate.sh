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

# Tests the unit tests: breaks the controller's code in one place after the other
# (hack/mutate) and fails if one of these mutants is neither killed by a test nor
# explained in hack/mutate/explained.txt. Prints a table.
#
#   hack/mutate.sh [ARGS OF hack/mutate...]     such as -list
#
#   FILES            what to mutate, default all files of the controller
#   MUTATE_MATCH     a regular expression: only mutants whose file, function or
#                    code matches
#   MUTATE_PARALLEL  how many at the same time, default one per processor

# shellcheck disable=SC2034,SC2317 # lib.sh uses the variables and calls cleanup

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"

FILES="${FILES:-controller.go rename.go foo.go options_webhook.go
  pkg/controller/gate.go pkg/controller/loop.go pkg/controller/queue.go pkg/controller/report.go pkg/controller/owner.go pkg/controller/errors.go
  $(find pkg/controller/child pkg/controller/memcached pkg/controller/crontab pkg/webhook pkg/namespaces -name '*.go' ! -name '*_test.go' | sort)}"
WORK=""

# The same detectors as in `make unit`.
export KUBE_CACHE_MUTATION_DETECTOR=true KUBE_PANIC_WATCH_DECODE_ERROR=true

cleanup() {
  [[ -z "${WORK}" ]] || rm -rf "${WORK}"
}

main() {
  local files args=(-explained hack/mutate/explained.txt -with pkg/controller/memcached -with .)
  read -r -d "" -a files <<<"${FILES}" || true
  [[ -z "${MUTATE_MATCH:-}" ]] || args+=(-match "${MUTATE_MATCH}")
  [[ -z "${MUTATE_PARALLEL:-}" ]] || args+=(-parallel "${MUTATE_PARALLEL}")
  cleanup_on_exit
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/sample-controller-mutate.XXXXXX")
  # A test that is killed leaves its temporary files behind.
  export TMPDIR="${WORK}"
  CHILD_IS_GO=yes
  interruptible go build -o "${WORK}/mutate" ./hack/mutate
  interruptible "${WORK}/mutate" "${args[@]}" "$@" "${files[@]}"
}

main "$@"
