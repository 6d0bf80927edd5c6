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

# Regenerates everything that is derived from the Go types in pkg/apis and from the markers in Go sources: deepcopy
# and register functions, apply configurations, the typed clientset, listers, informers, the CRDs, the reference
# docs/api.md, and what is below artifacts/deploy and says so.

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"
MODULE=$(go list -m)
# kube_codegen.sh leaves temporary files behind.
make_work codegen

go -C hack/tools mod download k8s.io/code-generator
# kube_codegen.sh installs the generators into GOBIN, which must not be the caller's.
export GOBIN="${CODEGEN_GOBIN:-${BIN}/codegen}"
# shellcheck source=/dev/null
source "$(go -C hack/tools list -m -f '{{.Dir}}' k8s.io/code-generator)/kube_codegen.sh"

# tool NAME prints the path of the program. To start it with 'go tool' each time takes longer.
tool() {
  go tool -modfile=hack/tools/go.mod -n "$1"
}
GOJQ=$(tool gojq)
CONTROLLER_GEN=$(tool controller-gen)
KUSTOMIZE=$(tool kustomize)

gojq() {
  "${GOJQ}" --yaml-input "$@"
}

# generate_schema prints the OpenAPI document that applyconfiguration-gen reads. The
# definitions behind it are 18,000 lines of Go that only hack/models-schema needs, so
# they stay in the temporary directory, and an overlay shows them to the compiler.
generate_schema() {
  kube::codegen::gen_openapi \
    --boilerplate hack/boilerplate.go.txt \
    --output-dir "${WORK}/openapi" \
    --output-pkg "${MODULE}/openapi" \
    --report-filename "${WORK}/api-violations" --update-report \
    --extra-pkgs k8s.io/api/batch/v1 \
    --extra-pkgs k8s.io/api/core/v1 \
    --extra-pkgs k8s.io/apimachinery/pkg/util/intstr \
    pkg/apis >&2
  {
    sed 's/^package .*/package main/' "${WORK}/openapi/zz_generated.openapi.go"
    echo 'func init() { definitions = GetOpenAPIDefinitions }'
  } >"${WORK}/definitions.go"
  printf '{"Replace": {"%s": "%s"}}' hack/models-schema/definitions.go "${WORK}/definitions.go" >"${WORK}/overlay.json"
  go run -overlay "${WORK}/overlay.json" ./hack/models-schema
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

# crds DIR writes the CRDs of the kinds in pkg/apis/DIR, one file a kind, to WORK/crd. A
# volume claim template in a Pod spec has metadata, which the API server would prune
# without generateEmbeddedObjectMeta.
crds() {
  rm -rf "${WORK}/crd"
  "${CONTROLLER_GEN}" "crd:headerFile=${WORK}/licence,generateEmbeddedObjectMeta=true" \
    "paths=./pkg/apis/$1" "output:crd:dir=${WORK}/crd"
}

# edited PROGRAM FILE prints the CRD that the program makes of the file's.
edited() {
  cat "${WORK}/licence"
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

# manifest FILE COMMENT writes stdin to artifacts/deploy/FILE, below the licence.
manifest() {
  {
    cat "${WORK}/licence"
    printf '\n# %s\n# Derived by hack/update-codegen.sh. Do not edit.\n---\n' "$2"
    cat
  } >"artifacts/deploy/$1"
}

# roles NAME PACKAGE... prints the roles that the markers of these packages ask for. NAME
# is the name of the ClusterRole of all markers that name no other.
roles() {
  local IFS=";"
  "${CONTROLLER_GEN}" "rbac:roleName=$1" "paths=${*:2}" output:stdout
}

# bound [ACCOUNT] reads roles and prints each with its binding to that service account, or to the
# controller's. The kustomization that includes a Role sets its namespace.
bound() {
  gojq --yaml-output --arg account "${1:-sample-controller}" 'del(.metadata.namespace) | ., {
    apiVersion, kind: (.kind + "Binding"), metadata,
    roleRef: {apiGroup: "rbac.authorization.k8s.io", kind, name: .metadata.name},
    subjects: [{kind: "ServiceAccount", name: $account}]
  }'
}

# one_rule_a_resource [RIGHTS] reads a role and prints it with one rule for each resource,
# without these rights: [[group, resource, verb...], ...].
one_rule_a_resource() {
  gojq --yaml-output --argjson removed "${1:-[]}" '.rules |= [
    .[] | .apiGroups[] as $group | .resources[] as $resource
    | .apiGroups = [$group] | .resources = [$resource]
    | .verbs -= [$removed[] | select(.[:2] == [$group, $resource]) | .[2:][]]
    | select(.verbs != [])
  ]'
}

# user_roles CRD prints the roles with which users view and edit the objects of the kind.
user_roles() {
  gojq --yaml-output '
    def role($suffix; $labels; $resources; $verbs): {
      apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole",
      metadata: {
        name: "sample-controller-\(.spec.names.singular)-\($suffix)",
        labels: [{key: "rbac.authorization.k8s.io/aggregate-to-\($labels[])", value: "true"}] | from_entries
      },
      rules: [{apiGroups: [.spec.group], resources: $resources, verbs: $verbs}]
    };
    .spec.names.plural as $plural | .spec.versions[0].subresources as $has
    | ["status", "scale" | select($has[.]) | "\($plural)/\(.)"] as $subresources
    | role("viewer"; ["view"]; [$plural] + $subresources; ["get", "list", "watch"]),
      role("editor"; ["edit", "admin"]; [$plural] + ($subresources - ["\($plural)/status"]);
        ["create", "delete", "deletecollection", "patch", "update"])' "$1"
}

# component CRD writes the component of one kind. Its role leaves out the rights in the
# cluster role of base, which every cluster-wide variant has.
component() {
  local kind name plural
  read -r name plural kind < <(gojq --raw-output '.spec.names | "\(.singular) \(.plural) \(.kind)"' "$1")
  # The first run of `make generate` for a new API comes before its controller.
  [[ -d "pkg/controller/${name}" ]] || return 0
  mkdir -p "artifacts/deploy/${name}"
  cp "$1" "artifacts/deploy/${name}/${plural}.yaml"
  roles "sample-controller-${name}" "./pkg/controller/${name}" | one_rule_a_resource "${SHARED}" | bound |
    manifest "${name}/cluster-role.yaml" "What the controller of ${kind}s may do beyond the rights in ../base/cluster-role.yaml."
  user_roles "$1" | manifest "${name}/user-roles.yaml" "Users may do with ${kind}s what they may do with a namespace: view, edit or administer them."
  component_of "${name}" "The CRD of ${kind}s, the controller's rights and the users' roles, as a component of ../base." \
    "${plural}.yaml" cluster-role.yaml user-roles.yaml
  COMPONENTS+=("../${name}")
  policies_of_users "$1" "./pkg/controller/${name}"
}

# policies_of_users CRD PACKAGE writes the policy for those who write objects of that kind.
policies_of_users() {
  local name kind group
  read -r name kind group < <(gojq --raw-output '"\(.spec.names.singular) \(.spec.names.kind) \(.spec.group)"' "$1")
  roles none "$2" | gojq -L hack --yaml-output --argjson names "$(gojq --compact-output .spec.names "$1")" --arg group "${group}" \
    'include "policies"; users($names; $group)' |
    manifest "policy-users/${name}.yaml" "Users who create or change a ${kind} must be allowed to create what its controller creates for it."
  OWN_KINDS+=("$(gojq --raw-output '"\(.spec.group)/\(.spec.versions[0].name)/\(.spec.names.kind)"' "$1")")
  POLICIES+=("${name}.yaml")
}

# component_of DIR COMMENT RESOURCES... writes the kustomization of a component. `kubectl apply -k` applies it
# alone, too.
component_of() {
  printf '%s\n' "apiVersion: kustomize.config.k8s.io/v1alpha1" "kind: Component" "resources:" "${@:3}" |
    sed -e '4,$s/^/- /' | manifest "$1/kustomization.yaml" "$2"
}

# The licence in comments of YAML.
sed -e '/^\/\*$/d' -e '/^\*\/$/d' -e 's/^/# /' -e 's/ *$//' -e '/^#$/{$d;}' hack/boilerplate.go.txt >"${WORK}/licence"
ALL_APIS=(pkg/apis)
ALL_APIS+=(test/newkind/pkg/apis) # +drop:newkind
# A file that is no longer generated would stay.
rm -rf {,test/*/}pkg/generated
find "${ALL_APIS[@]}" -name 'zz_generated.*.go' -exec rm -f {} +
for apis in "${ALL_APIS[@]}"; do
  kube::codegen::gen_helpers --boilerplate hack/boilerplate.go.txt "${apis}"
  kube::codegen::gen_register --boilerplate hack/boilerplate.go.txt "${apis}"
done

# kube_codegen.sh prints errors if these directories do not exist.
mkdir -p pkg/generated/{applyconfiguration,clientset,listers,informers}
generate_schema >"${WORK}/openapi.json"
kube::codegen::gen_client \
  --boilerplate hack/boilerplate.go.txt \
  --output-dir pkg/generated \
  --output-pkg "${MODULE}/pkg/generated" \
  --with-watch \
  --with-applyconfig \
  --plural-exceptions "$(plural_exceptions)" \
  --applyconfig-externals "k8s.io/api/batch/v1.PodFailurePolicy:${BATCH},k8s.io/api/core/v1.PodSpec:${CORE},k8s.io/api/core/v1.ObjectReference:${CORE}" \
  --applyconfig-openapi-schema "${WORK}/openapi.json" \
  pkg/apis
# +drop:newkind
# The kinds that make new-kind copies have APIs of their own.
mkdir -p test/newkind/pkg/generated/{clientset,listers,informers}
kube::codegen::gen_client --boilerplate hack/boilerplate.go.txt --with-watch \
  --output-dir test/newkind/pkg/generated --output-pkg "${MODULE}/test/newkind/pkg/generated" test/newkind/pkg/apis
# +drop:end

# The CRD of each kind in its stored version goes to artifacts/examples, and that of a kind with several versions,
# which takes the webhook, to artifacts/deploy.
echo "Generating the CRDs"
for group in pkg/apis/*; do
  group="${group##*/}"
  versions=("pkg/apis/${group}"/*/types.go)
  stored="${versions[0]}"
  if ((${#versions[@]} > 1)); then
    stored=$(grep -l '^// +kubebuilder:storageversion$' "${versions[@]}")
    # +drop:webhooks
    crds "${group}/..."
    for file in "${WORK}"/crd/*.yaml; do
      converted_by_webhook "${file}" > "artifacts/deploy/webhook/$(gojq --raw-output .spec.names.plural "${file}").yaml"
    done
    # +drop:end
  fi
  stored="${stored%/types.go}"
  crds "${stored#pkg/apis/}"
  for file in "${WORK}"/crd/*.yaml; do
    name=$(gojq --raw-output .spec.names.singular "${file}")-crd
    # The first kind of this repository has its CRD where the stock sample has it.
    terse "${file}" > "artifacts/examples/${name#foo-}.yaml"
  done
done
# +drop:newkind
# Those of the kinds that make new-kind copies show that their markers are right.
crds ../../test/newkind/pkg/apis/...
for file in "${WORK}"/crd/*.yaml; do
  terse "${file}" > "test/newkind/artifacts/examples/$(gojq --raw-output .spec.names.singular "${file}")-crd.yaml"
done
# +drop:end

echo "Generating docs/api.md"
release=$(go list -m -f '{{.Version}}' k8s.io/api)
release="${release#v0.}"
cat >"${WORK}/reference.yaml" <<CONFIG
processor:
  ignoreTypes: ["List\$"]
  ignoreFields: ["TypeMeta\$"]
render:
  kubernetesVersion: "1.${release%%.*}"
CONFIG
go tool -modfile=hack/tools/reference/go.mod crd-ref-docs --log-level=ERROR --renderer=markdown \
  --config="${WORK}/reference.yaml" --source-path=pkg/apis --output-path="${WORK}/api.md"
mkdir -p docs
{ echo "<!-- Generated by hack/update-codegen.sh from pkg/apis. Do not edit. -->" && cat -s "${WORK}/api.md"; } >docs/api.md

echo "Generating the manifests"
# kustomize reads no file outside its directory.
cp artifacts/examples/crd.yaml artifacts/deploy/crd/foos.yaml
roles sample-controller . ./pkg/events | bound |
  manifest base/cluster-role.yaml "What the controller may do in the cluster. The directory of each further kind has more."
user_roles artifacts/examples/crd.yaml |
  manifest base/user-roles.yaml "Users may do with Foos what they may do with a namespace: view, edit or administer them."
server=$(roles none ./pkg/server)
gojq --yaml-output 'select(.kind == "ClusterRole")' <<<"${server}" | bound |
  manifest base/metrics-auth-role.yaml "The rights to authenticate and authorize clients that read the metrics."
gojq --yaml-output 'select(.kind == "Role")' <<<"${server}" | bound |
  manifest controller/lease-role.yaml "What leader election takes, in the controller's own namespace."
# +drop:webhooks
roles none ./pkg/webhook ./pkg/webhook/certs | bound sample-controller-webhook |
  manifest webhook/server/roles.yaml "What the webhooks may do: read what they look up, and keep their certificate in a Secret and its authorities in the CRD and the configurations."
# +drop:end

SHARED=$(gojq --compact-output \
  'select(.kind == "ClusterRole") | [.rules[] | .apiGroups[] as $group | .resources[] as $resource | [$group, $resource, .verbs[]]]' \
  artifacts/deploy/base/cluster-role.yaml)
mkdir -p artifacts/deploy/policy{,-namespaces,-users}
COMPONENTS=()
OWN_KINDS=()
POLICIES=()
policies_of_users artifacts/examples/crd.yaml .
for crd in artifacts/examples/*-crd.yaml; do
  [[ ! -e "${crd}" ]] || component "${crd}"
done
base=$(sed '/^components:$/,$d' artifacts/deploy/base/kustomization.yaml)
printf '%s\n' "${base}" components: ${COMPONENTS[@]+"${COMPONENTS[@]/#/- }"} "- ../policy" >artifacts/deploy/base/kustomization.yaml
roles sample-controller . ./pkg/events ${COMPONENTS[@]+"${COMPONENTS[@]/#..\//./pkg/controller/}"} | gojq --yaml-output '.kind = "Role"' |
  one_rule_a_resource | manifest namespaced/role.yaml "All rights of ../*/cluster-role.yaml. The binding is apart: docs/scale.md applies this role in further namespaces."

for file in policy/service-account policy-namespaces/namespaces; do
  gojq -L hack --yaml-output "include \"policies\"; $(tr - _ <<<"${file#*/}")(\$ARGS.positional)" artifacts/deploy/namespaced/role.yaml --args "${OWN_KINDS[@]}" |
    manifest "${file}.yaml" "What the service account of the controller may write, beyond its roles: docs/security.md."
  component_of "${file%/*}" "ValidatingAdmissionPolicies: docs/security.md." "${file#*/}.yaml"
done
component_of policy-users "ValidatingAdmissionPolicies: docs/security.md." "${POLICIES[@]}"

FILES="base=install"
FILES+=" with-webhook=install-webhook" # +drop:webhooks
for file in ${FILES}; do
  dir="artifacts/deploy/${file%=*}"
  "${KUSTOMIZE}" build "${dir}" | manifest "${file#*=}.yaml" "What 'kubectl kustomize ${dir}' prints. Keep its ValidatingAdmissionPolicies: without them a stolen token of the
# controller is worth as much as a cluster administrator's (docs/security.md)."
done
