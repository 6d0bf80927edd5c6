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

# Regenerates all that is derived from the Go types in pkg/apis: deepcopy and
# register functions, OpenAPI definitions, apply configurations, the typed
# clientset, listers, informers, and the CRDs. Needs nothing but this checkout.

set -o errexit
set -o nounset
set -o pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
MODULE=$(cd "${ROOT}" && go list -m)
cd "${ROOT}"

TMP=$(mktemp -d)
trap 'rm -rf "${TMP}"' EXIT
# kube_codegen.sh leaves temporary files behind.
export TMPDIR="${TMP}"

CODEGEN_PKG=$(go -C hack/tools list -m -f '{{.Dir}}' k8s.io/code-generator)
if [[ -z "${CODEGEN_PKG}" ]]; then
  go -C hack/tools mod download k8s.io/code-generator
  CODEGEN_PKG=$(go -C hack/tools list -m -f '{{.Dir}}' k8s.io/code-generator)
fi

# kube_codegen.sh installs the generators into GOBIN; the caller's own stays
# untouched.
export GOBIN="${CODEGEN_GOBIN:-${ROOT}/bin/codegen}"
# shellcheck source=/dev/null
source "${CODEGEN_PKG}/kube_codegen.sh"

# One list of what was generated before, so that a file which is no longer
# generated does not linger.
remove_generated() {
  rm -rf pkg/generated
  find pkg/apis -name 'zz_generated.*.go' -exec rm -f {} +
}

generate_helpers() {
  kube::codegen::gen_helpers --boilerplate hack/boilerplate.go.txt pkg/apis
  kube::codegen::gen_register --boilerplate hack/boilerplate.go.txt pkg/apis
  kube::codegen::gen_openapi \
    --boilerplate hack/boilerplate.go.txt \
    --output-dir pkg/generated/openapi \
    --output-pkg "${MODULE}/pkg/generated/openapi" \
    --report-filename "${TMP}/api-violations" --update-report \
    --extra-pkgs k8s.io/api/core/v1 \
    --extra-pkgs k8s.io/apimachinery/pkg/util/intstr \
    pkg/apis
}

# What types of the core API in ours are in an apply configuration.
CORE=k8s.io/client-go/applyconfigurations/core/v1

generate_client() {
  # kube_codegen.sh looks for earlier output and grumbles where there is none.
  mkdir -p pkg/generated/{applyconfiguration,clientset,listers,informers}
  go run ./hack/models-schema > "${TMP}/openapi.json"
  kube::codegen::gen_client \
    --boilerplate hack/boilerplate.go.txt \
    --output-dir pkg/generated \
    --output-pkg "${MODULE}/pkg/generated" \
    --with-watch \
    --with-applyconfig \
    --applyconfig-externals "k8s.io/api/core/v1.PodSpec:${CORE},k8s.io/api/core/v1.ObjectReference:${CORE}" \
    --applyconfig-openapi-schema "${TMP}/openapi.json" \
    pkg/apis
}

# crd DIR [OPTIONS] prints the CRD of the one kind in pkg/apis/DIR.
crd() {
  rm -rf "${TMP}/crd"
  go tool -modfile=hack/tools/go.mod controller-gen \
    "crd:headerFile=${TMP}/boilerplate.yaml.txt${2:+,$2}" \
    "paths=./pkg/apis/$1" \
    "output:crd:dir=${TMP}/crd"
  cat "${TMP}"/crd/*.yaml
}

# converted_by_webhook has the API server ask the webhook for other versions.
converted_by_webhook() {
  cat "${TMP}/boilerplate.yaml.txt"
  echo "---"
  go tool -modfile=hack/tools/go.mod gojq --yaml-input --yaml-output '
    .spec.conversion = {
      strategy: "Webhook",
      webhook: {
        conversionReviewVersions: ["v1"],
        clientConfig: {service: {namespace: "sample-controller-system", name: "sample-controller-webhook", path: "/convert-foo"}}
      }
    }'
}

# terse_job_template takes the descriptions out of the Pod spec of a CronTab's CRD:
# with them it is too large for the annotation that kubectl apply writes.
terse_job_template() {
  cat "${TMP}/boilerplate.yaml.txt"
  echo ---
  go tool -modfile=hack/tools/go.mod gojq --yaml-input --yaml-output '
    .spec.versions[].schema.openAPIV3Schema.properties.spec.properties.jobTemplate.properties |=
      walk(if type == "object" and (.description | type) == "string" then del(.description) end)'
}

generate_crds() {
  # controller-gen wants the licence as YAML comments.
  sed -e '/^\/\*$/d' -e '/^\*\/$/d' -e 's/^/# /' -e 's/ *$//' -e '/^#$/{$d;}' \
    hack/boilerplate.go.txt > "${TMP}/boilerplate.yaml.txt"
  echo "Generating the CRDs"
  crd samplecontroller/v1alpha1 > artifacts/examples/crd.yaml
  crd samplecontroller/... | converted_by_webhook > artifacts/deploy/webhook/foos.yaml
  crd cache/v1alpha1 > artifacts/examples/memcached-crd.yaml
  # A volume claim template in a Pod spec has metadata, which would be pruned.
  crd alpha/v1 generateEmbeddedObjectMeta=true | terse_job_template > artifacts/examples/crontab-crd.yaml
}

remove_generated
generate_helpers
generate_client
generate_crds
