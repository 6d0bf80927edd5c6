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
# Derives from the others the manifests that are copies: the CRDs below
# artifacts/deploy, which kustomize takes from nowhere else, and the single files
# that install everything.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cp artifacts/examples/crd.yaml artifacts/deploy/crd/foos.yaml
for crd in artifacts/examples/*-crd.yaml; do
  kind=$(basename "${crd}" -crd.yaml)
  # One that is being added has none yet.
  [[ ! -d "artifacts/deploy/${kind}" ]] || cp "${crd}" "artifacts/deploy/${kind}/${kind}s.yaml"
done
# single_file DIR prints all that kustomize makes of artifacts/deploy/DIR.
single_file() {
  sed -e '/^---$/,$d' artifacts/examples/crd.yaml
  echo "# What 'kubectl kustomize artifacts/deploy/$1' prints. Do not edit."
  echo "---"
  go tool -modfile=hack/tools/go.mod kustomize build "artifacts/deploy/$1"
}
single_file base >artifacts/deploy/install.yaml
single_file with-webhook >artifacts/deploy/install-webhook.yaml
