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

# Fails if a go.mod or go.sum is not tidy, if the modules disagree on the version
# of Kubernetes, or if the root module depends on k8s.io/kubernetes or
# controller-runtime.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
MODULES=(. hack/tools hack/tools/reference hack/tools/workflows hack/cluster)
MODULES+=(hack/tools/helm hack/tools/release) # +drop:release
MODULES+=(hack/tools/mutation) # +drop:mutation
MODULES+=(hack/plot test/bench/peer) # +drop:bench
failed=0
complain() {
  echo "$1" >&2
  failed=1
}

for module in "${MODULES[@]}"; do
  go -C "${module}" mod tidy -diff ||
    complain "${module}/go.mod is not tidy (diff above). Run 'go -C ${module} mod tidy'."
done

# k8s.io/kubernetes v1.X.Y goes with v0.X.Y of the libraries.
want=$(go -C hack/cluster list -m -f '{{.Version}}' k8s.io/kubernetes | sed 's/^v1/v0/')
for module in "${MODULES[@]}"; do
  for library in api apiextensions-apiserver apimachinery apiserver client-go code-generator component-base; do
    got=$(go -C "${module}" list -m -f '{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}' "k8s.io/${library}" 2>/dev/null) || continue
    if [[ "${got}" != "${want}" ]]; then
      complain "${module}/go.mod has k8s.io/${library} ${got}, the control plane is ${want}. Use one version everywhere."
    fi
  done
done

# The controller and the control plane share compiled packages only where both have the
# same version.
versions() { # module package
  go -C "$1" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}' "$2" | sort -u
}
while read -r path ours theirs; do
  [[ "${ours}" == "${theirs}" ]] ||
    complain "go.mod has ${path} ${ours}, hack/cluster/go.mod ${theirs}: both builds would compile it. Run 'go get' with the newer one in the other."
done < <(join <(versions . .) <(versions hack/cluster tool))

graph=$(go list -m all)
for banned in k8s.io/kubernetes sigs.k8s.io/controller-runtime; do
  if grep -q "^${banned} " <<< "${graph}"; then
    complain "the root module depends on ${banned}: $(go mod why -m "${banned}" | tail -n +2 | head -n 3 | tr '\n' ' ')"
  fi
done
exit "${failed}"
