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

# Builds the image and tests two replicas, each in a container, on
# a cluster that it starts and removes again. Needs docker or podman.
#
#   CONTAINER_TOOL   docker or podman, default the first that works

set -o errexit -o nounset -o pipefail

# shellcheck source=../test/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/lib.sh"

# The label of all containers of this run.
LABEL=""

finish_image() {
  local left
  if [[ -n "${LABEL}" ]]; then
    left=$("${CONTAINER_TOOL}" ps --all --quiet --filter "label=${LABEL}" 2>/dev/null) || left=""
    # shellcheck disable=SC2086 # one argument for each
    [[ -z "${left}" ]] || "${CONTAINER_TOOL}" rm --force ${left} >/dev/null 2>&1 || true
    "${CONTAINER_TOOL}" rmi --force "${E2E_IMAGE}" >/dev/null 2>&1 || true
  fi
  finish "$1"
}

main() {
  CONTAINER_TOOL=$(container_tool)
  E2E_RUN=$(container_run "${CONTAINER_TOOL}")
  export CONTAINER_TOOL E2E_IMAGE E2E_RUN
  make_work e2e-image
  LABEL=$(basename "${WORK}")
  E2E_IMAGE="localhost/sample-controller:${LABEL##*.}"
  # Names of images must be lower case.
  E2E_IMAGE=$(printf '%s' "${E2E_IMAGE}" | tr '[:upper:]' '[:lower:]')
  trap 'finish_image $?' EXIT
  build_programs
  attend "${ROOT}/hack/image.sh" "${E2E_IMAGE}"
  e2e_cluster_up
  go_test -count=1 -tags e2e -timeout 8m -run '^TestWalkthrough3$' ./test/e2e
}

main "$@"
