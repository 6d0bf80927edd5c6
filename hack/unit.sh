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

# Runs the unit tests with all detectors on, those of the tools without. Those of the program run a
# second time without them: some count allocations or bytes, and the detectors allocate; others
# simulate years, which takes minutes with the detectors.

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"

# The race detector needs cgo. The tools in hack do one thing at a time, and their tests compute
# so much that the detector would take minutes. On a loaded machine a package may take longer than
# go's limit of ten minutes.
go list ./... | grep -v /hack/ |
  CGO_ENABLED=1 KUBE_CACHE_MUTATION_DETECTOR=true KUBE_PANIC_WATCH_DECODE_ERROR=true xargs go test -race -timeout 20m
go test ./hack/...
go test . ./pkg/...
