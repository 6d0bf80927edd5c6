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

# Fails unless the Helm chart of hack/release is valid, and installs the same objects as install.yaml
# in artifacts/deploy, and as each other manifest that it is made from.

# shellcheck disable=SC2317 # lib.sh calls cleanup

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROGRAM=sample-controller
NAMESPACE=sample-controller-system
DEPLOY="${ROOT}/artifacts/deploy"
HELM="${ROOT}/bin/tools/helm"
TMP=""

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
}

build_tools() {
  mkdir -p "${ROOT}/bin/tools"
  build_helm "${ROOT}/bin/tools"
  go -C "${ROOT}" tool -modfile=hack/tools/go.mod -n gojq >"${TMP}/gojq"
}

# helm runs it without plugins and settings of the caller.
helm() {
  env HELM_CONFIG_HOME="${TMP}/config" HELM_CACHE_HOME="${TMP}/cache" HELM_DATA_HOME="${TMP}/data" "${HELM}" "$@"
}

# objects prints the objects on stdin, one a line, in the same order for the same objects. The
# namespace is Helm's to create.
objects() {
  "$(<"${TMP}/gojq")" --yaml-input --slurp --compact-output \
    'map(select(. != null and .kind != "Namespace")) | sort_by([.kind, .metadata.namespace, .metadata.name])[]'
}

# crds prints the CRDs on stdin, without what separates them from other objects.
crds() {
  "$(<"${TMP}/gojq")" --yaml-input --yaml-output 'select(.kind == "CustomResourceDefinition")'
}

# same WHAT WANT fails unless what helm template has written to TMP/got are the objects in WANT.
same() {
  objects <"$2" >"${TMP}/want.json"
  objects <"${TMP}/got" >"${TMP}/got.json"
  diff -u "${TMP}/want.json" "${TMP}/got.json" ||
    die "the chart $1 has other objects than the manifests (above: - in the manifests, + in the chart); its values are in hack/release/chart/values.yaml"
}

# template FLAG... writes what the chart installs.
template() {
  helm template "${PROGRAM}" "${TMP}/${PROGRAM}" --namespace "${NAMESPACE}" "$@" >"${TMP}/got"
}

# refused VALUE WHY fails unless Helm refuses the value and says why.
refused() {
  ! template --set "$1" 2>"${TMP}/err" || die "helm accepts --set $1"
  grep --quiet --fixed-strings -- "$2" "${TMP}/err" || die "helm refuses --set $1 with another reason than \"$2\": $(<"${TMP}/err")"
}

main() {
  cleanup_on_exit
  TMP=$(mktemp -d)
  compiling build_tools
  interruptible write_chart "${TMP}/${PROGRAM}"
  helm lint --quiet --strict "${TMP}/${PROGRAM}"

  template --include-crds
  same "with its defaults" "${DEPLOY}/install.yaml"
  # +drop:webhooks
  template --set webhook.enabled=true
  crds <"${DEPLOY}/install-webhook.yaml" >"${TMP}/crds"
  { cat "${TMP}/got" && echo --- && cat "${TMP}/crds"; } >"${TMP}/both"
  mv "${TMP}/both" "${TMP}/got"
  same "with webhook.enabled" "${DEPLOY}/install-webhook.yaml"
  # +drop:end

  template --include-crds --namespace other --set image=registry.example.com/other@sha256:0,replicas=3,resources.limits.memory=1Gi
  sed -e "s|${NAMESPACE}|other|" -e "s|image: ${PROGRAM}:latest|image: registry.example.com/other@sha256:0|" \
    -e 's|replicas: 2$|replicas: 3|' -e 's|^            memory: 256Mi$|            memory: 1Gi|' "${DEPLOY}/install.yaml" >"${TMP}/changed.yaml"
  ! cmp -s "${DEPLOY}/install.yaml" "${TMP}/changed.yaml" || die "install.yaml has nothing to change"
  same "with other values" "${TMP}/changed.yaml"

  template --set global.any=1,resources.limits.cpu=1
  refused replica=3 "'replica' not allowed"
  refused replicas=two "at '/replicas': got string, want integer"
  refused image.tag=v1 "at '/image': got object, want string"
  refused resources.limit.memory=1Gi "at '/resources': additional properties 'limit' not allowed"
  # +drop:webhooks
  refused webhook.enable=true "at '/webhook': additional properties 'enable' not allowed"
  # +drop:end
}

main "$@"
