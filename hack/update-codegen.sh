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

# Regenerates everything that is derived from the Go types in pkg/apis: deepcopy and
# register functions, apply configurations, the typed clientset, listers, informers,
# the CRDs, and the reference docs/api.md. Needs nothing but this checkout.

set -o errexit
set -o nounset
set -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
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

# kube_codegen.sh installs the generators into GOBIN, which must not be the caller's.
export GOBIN="${CODEGEN_GOBIN:-${ROOT}/bin/codegen}"
# shellcheck source=/dev/null
source "${CODEGEN_PKG}/kube_codegen.sh"

# Deletes all earlier output first: a file that is no longer generated would stay.
remove_generated() {
  rm -rf pkg/generated test/newkind/pkg/generated
  find pkg/apis test/newkind/pkg/apis -name 'zz_generated.*.go' -exec rm -f {} +
}

generate_helpers() {
  local apis
  for apis in pkg/apis test/newkind/pkg/apis; do
    kube::codegen::gen_helpers --boilerplate hack/boilerplate.go.txt "${apis}"
    kube::codegen::gen_register --boilerplate hack/boilerplate.go.txt "${apis}"
  done
}

# generate_schema prints the OpenAPI document that applyconfiguration-gen reads. The
# definitions behind it are 18,000 lines of Go that only hack/models-schema imports, so
# they stay in the temporary directory, and an overlay shows them to the compiler.
generate_schema() {
  local package="hack/models-schema/openapi"
  kube::codegen::gen_openapi \
    --boilerplate hack/boilerplate.go.txt \
    --output-dir "${TMP}/openapi" \
    --output-pkg "${MODULE}/${package}" \
    --report-filename "${TMP}/api-violations" --update-report \
    --extra-pkgs k8s.io/api/batch/v1 \
    --extra-pkgs k8s.io/api/core/v1 \
    --extra-pkgs k8s.io/apimachinery/pkg/util/intstr \
    pkg/apis >&2
  cat >"${TMP}/definitions.go" <<EOF
package main

import "${MODULE}/${package}"

func init() { definitions = openapi.GetOpenAPIDefinitions }
EOF
  cat >"${TMP}/overlay.json" <<EOF
{"Replace": {
  "${ROOT}/hack/models-schema/definitions.go": "${TMP}/definitions.go",
  "${ROOT}/${package}/zz_generated.openapi.go": "${TMP}/openapi/zz_generated.openapi.go"
}}
EOF
  go run -overlay "${TMP}/overlay.json" ./hack/models-schema
}

# The packages that have the apply configurations of types which our types embed.
BATCH=k8s.io/client-go/applyconfigurations/batch/v1
CORE=k8s.io/client-go/applyconfigurations/core/v1

# plural_exceptions prints the kinds whose plural is another one than the generators make, as
# in "Mouse:Mice": those with the marker +resourceName.
plural_exceptions() {
  find pkg/apis -name '*.go' | sort | xargs awk '
    /^\/\/ \+resourceName=/ { sub(/^.*=/, ""); plural = $0 }
    /^type / && plural != "" { printf "%s%s:%s%s", comma, $2, toupper(substr(plural, 1, 1)), substr(plural, 2); comma = ","; plural = "" }'
}

generate_client() {
  # kube_codegen.sh prints errors if these directories do not exist.
  mkdir -p pkg/generated/{applyconfiguration,clientset,listers,informers} test/newkind/pkg/generated/{clientset,listers,informers}
  generate_schema >"${TMP}/openapi.json"
  kube::codegen::gen_client \
    --boilerplate hack/boilerplate.go.txt \
    --output-dir pkg/generated \
    --output-pkg "${MODULE}/pkg/generated" \
    --with-watch \
    --with-applyconfig \
    --plural-exceptions "$(plural_exceptions)" \
    --applyconfig-externals "k8s.io/api/batch/v1.PodFailurePolicy:${BATCH},k8s.io/api/core/v1.PodSpec:${CORE},k8s.io/api/core/v1.ObjectReference:${CORE}" \
    --applyconfig-openapi-schema "${TMP}/openapi.json" \
    pkg/apis
  # For the kinds that make new-kind copies.
  kube::codegen::gen_client --boilerplate hack/boilerplate.go.txt --with-watch \
    --output-dir test/newkind/pkg/generated --output-pkg "${MODULE}/test/newkind/pkg/generated" test/newkind/pkg/apis
}

gojq() {
  go tool -modfile=hack/tools/go.mod gojq --yaml-input "$@"
}

# crds DIR writes the CRDs of the kinds in pkg/apis/DIR, one file a kind, to TMP/crd. A
# volume claim template in a Pod spec has metadata, which the API server would prune
# without generateEmbeddedObjectMeta.
crds() {
  rm -rf "${TMP}/crd"
  go tool -modfile=hack/tools/go.mod controller-gen \
    "crd:headerFile=${TMP}/boilerplate.yaml.txt,generateEmbeddedObjectMeta=true" \
    "paths=./pkg/apis/$1" \
    "output:crd:dir=${TMP}/crd"
}

# edited PROGRAM FILE prints the CRD that the program makes of the file's.
edited() {
  cat "${TMP}/boilerplate.yaml.txt"
  echo "---"
  gojq --yaml-output "$@"
}

# +drop:webhooks
# converted_by_webhook FILE prints the CRD whose versions the webhook converts. The stored version is
# the first one: docs/webhooks.md says how to store the other.
converted_by_webhook() {
  edited '.spec.versions |= sort_by(.storage | not) | .spec.conversion = {
    strategy: "Webhook",
    webhook: {
      conversionReviewVersions: ["v1"],
      clientConfig: {service: {namespace: "sample-controller-system", name: "sample-controller-webhook", path: "/convert-\(.spec.names.singular)"}}
    }
  }' "$1"
}
# +drop:end

# terse FILE prints the CRD without the descriptions in fields that have Pod templates:
# with them it is too large for the annotation that kubectl apply writes.
terse() {
  if ! grep -q ' containers:$' "$1"; then
    cat "$1"
    return
  fi
  edited '.spec.versions[].schema.openAPIV3Schema.properties.spec.properties[] |=
    if [.. | objects | has("containers")] | any then
      .properties |= walk(if type == "object" and (.description | type) == "string" then del(.description) end)
    end' "$1"
}

# generate_crds writes the CRD of each kind in its stored version to artifacts/examples,
# and that of a kind with several versions, which takes the webhook, to artifacts/deploy.
generate_crds() {
  # controller-gen copies the licence from a file of YAML comments.
  sed -e '/^\/\*$/d' -e '/^\*\/$/d' -e 's/^/# /' -e 's/ *$//' -e '/^#$/{$d;}' \
    hack/boilerplate.go.txt > "${TMP}/boilerplate.yaml.txt"
  echo "Generating the CRDs"
  local group versions stored file name
  for group in pkg/apis/*; do
    group="${group##*/}"
    versions=("pkg/apis/${group}"/*/types.go)
    stored="${versions[0]}"
    if ((${#versions[@]} > 1)); then
      stored=$(grep -l '^// +kubebuilder:storageversion$' "${versions[@]}")
      # +drop:webhooks
      crds "${group}/..."
      for file in "${TMP}"/crd/*.yaml; do
        converted_by_webhook "${file}" > "artifacts/deploy/webhook/$(gojq --raw-output .spec.names.plural "${file}").yaml"
      done
      # +drop:end
    fi
    stored="${stored%/types.go}"
    crds "${stored#pkg/apis/}"
    for file in "${TMP}"/crd/*.yaml; do
      name=$(gojq --raw-output .spec.names.singular "${file}")-crd
      # The first kind of this repository has its CRD where the stock sample has it.
      terse "${file}" > "artifacts/examples/${name#foo-}.yaml"
    done
  done
  # Those of the kinds that make new-kind copies show that their markers are right.
  crds ../../test/newkind/pkg/apis/...
  for file in "${TMP}"/crd/*.yaml; do
    terse "${file}" > "test/newkind/artifacts/examples/$(gojq --raw-output .spec.names.singular "${file}")-crd.yaml"
  done
}

# generate_reference writes the reference of all fields.
generate_reference() {
  echo "Generating docs/api.md"
  local release
  release=$(go list -m -f '{{.Version}}' k8s.io/api)
  release="${release#v0.}"
  cat >"${TMP}/reference.yaml" <<CONFIG
processor:
  ignoreTypes: ["List\$"]
  ignoreFields: ["TypeMeta\$"]
render:
  kubernetesVersion: "1.${release%%.*}"
CONFIG
  go tool -modfile=hack/tools/reference/go.mod crd-ref-docs --log-level=ERROR --renderer=markdown \
    --config="${TMP}/reference.yaml" --source-path=pkg/apis --output-path="${TMP}/api.md"
  mkdir -p docs
  { echo "<!-- Generated by hack/update-codegen.sh from pkg/apis. Do not edit. -->" && cat -s "${TMP}/api.md"; } >docs/api.md
}

remove_generated
generate_helpers
generate_client
generate_crds
generate_reference
