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

# Derives manifests below artifacts/deploy from the CRDs in artifacts/examples and from
# the +kubebuilder:rbac markers in the Go sources: the copies of the CRDs (kustomize reads
# no file outside its directory), the controller's roles, the users' roles, a kustomize
# component for each kind but Foo, and the single files that install everything.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# tool NAME prints the path of the program. To start it with 'go tool' each time takes longer.
tool() {
  go tool -modfile=hack/tools/go.mod -n "$1"
}
GOJQ=$(tool gojq)
CONTROLLER_GEN=$(tool controller-gen)
KUSTOMIZE=$(tool kustomize)

# gojq [OPTIONS] PROGRAM [FILE] reads YAML.
gojq() {
  "${GOJQ}" --yaml-input "$@"
}

# manifest FILE COMMENT writes stdin to artifacts/deploy/FILE, below the licence.
manifest() {
  {
    sed -e '/^---$/,$d' artifacts/examples/crd.yaml
    printf '\n# %s\n# Derived by hack/update-manifests.sh. Do not edit.\n---\n' "$2"
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
# controller's.
# The kustomization that includes a Role sets its namespace.
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
  printf '%s\n' "apiVersion: kustomize.config.k8s.io/v1alpha1" "kind: Component" "resources:" \
    "- ${plural}.yaml" "- cluster-role.yaml" "- user-roles.yaml" |
    manifest "${name}/kustomization.yaml" "The CRD of ${kind}s, the controller's rights and the users' roles, as a component of ../base."
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
  OWN_GROUPS+=("${group}")
  POLICIES+=("${name}.yaml")
}

# component_of DIR RESOURCES... writes the kustomization of a component. `kubectl apply -k` applies
# it alone, too.
component_of() {
  printf '%s\n' "apiVersion: kustomize.config.k8s.io/v1alpha1" "kind: Component" "resources:" "${@:2:$(($# - 1))}" |
    sed -e '4,$s/^/- /' | manifest "$1/kustomization.yaml" "ValidatingAdmissionPolicies: docs/security.md."
}

# single_file DIR NAME writes all that kustomize makes of artifacts/deploy/DIR to NAME.yaml.
single_file() {
  "${KUSTOMIZE}" build "artifacts/deploy/$1" | manifest "$2.yaml" "What 'kubectl kustomize artifacts/deploy/$1' prints."
}

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
mkdir -p artifacts/deploy/policy artifacts/deploy/policy-users
COMPONENTS=()
OWN_GROUPS=()
POLICIES=()
policies_of_users artifacts/examples/crd.yaml .
for crd in artifacts/examples/*-crd.yaml; do
  [[ ! -e "${crd}" ]] || component "${crd}"
done
sed -i.old -e '/^components:$/,$d' artifacts/deploy/base/kustomization.yaml
rm artifacts/deploy/base/kustomization.yaml.old
if ((${#COMPONENTS[@]} > 0)); then
  printf '%s\n' "components:" "${COMPONENTS[@]/#/- }" >>artifacts/deploy/base/kustomization.yaml
fi

roles sample-controller . ./pkg/events ${COMPONENTS[@]+"${COMPONENTS[@]/#..\//./pkg/controller/}"} | gojq --yaml-output '.kind = "Role"' |
  one_rule_a_resource | manifest namespaced/role.yaml "All rights of ../*/cluster-role.yaml. The binding is apart: docs/scale.md applies this role in further namespaces."

gojq -L hack --yaml-output 'include "policies"; service_account($ARGS.positional)' artifacts/deploy/namespaced/role.yaml --args "${OWN_GROUPS[@]}" |
  manifest policy/service-account.yaml "What the service account of the controller may write, beyond its roles: docs/security.md."
component_of policy service-account.yaml
component_of policy-users "${POLICIES[@]}"

single_file base install
# +drop:webhooks
single_file with-webhook install-webhook
# +drop:end
