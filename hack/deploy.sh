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
# Builds or pushes an image. Installs its controller, or the CRDs alone, in the cluster that kubectl talks to,
# or removes them with all that the controller made.
#
#   hack/deploy.sh image IMG | push IMG | up IMG | down | install_crds | uninstall_crds
#
#   CONTAINER_TOOL   docker or podman, default the first that works
#   ARCH      of the image: amd64 or arm64, default this machine's
#   WEBHOOK   not empty for admission and conversion of Foos as well # +drop:webhooks
#   KUBECTL   default kubectl

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DEPLOY="${ROOT}/artifacts/deploy"
INSTALL="${DEPLOY}/install.yaml"
[[ -z "${WEBHOOK:-}" ]] || INSTALL="${DEPLOY}/install-webhook.yaml" # +drop:webhooks
NAMESPACE=sample-controller-system
# The image that the manifests name.
PLACEHOLDER="image: sample-controller:latest"

kubectl() {
  command "${KUBECTL:-kubectl}" "$@"
}

# delete and delete_here, which is for the namespace of the controller, accept that there is nothing.
delete() {
  kubectl delete --ignore-not-found "$@"
}

delete_here() {
  delete --namespace="${NAMESPACE}" "$@"
}

# image IMG builds the image from the static binary, which needs no network.
image() {
  local tool arch="${ARCH:-$(go env GOARCH)}"
  tool=$(container_tool)
  make_work image
  say "Building the binary for linux/${arch}"
  GOOS=linux GOARCH="${arch}" compiling build_static "${WORK}/bin/sample-controller"
  say "Building $1 with ${tool}"
  interruptible "${tool}" build --platform "linux/${arch}" --file "${ROOT}/Dockerfile" --tag "$1" "${WORK}/bin"
  echo "$1"
}

push() {
  "$(container_tool)" push "$1"
}

manifests() {
  grep -q "${PLACEHOLDER}" "${INSTALL}" || die "${INSTALL} does not say '${PLACEHOLDER}'"
  sed "s|${PLACEHOLDER}|image: $1|" "${INSTALL}"
}

up() {
  if [[ -n "${WEBHOOK:-}" ]]; then replace_webhook_server "$1"; else stop_converting; fi # +drop:webhooks
  manifests "$1" | kubectl apply -f -
  # +drop:webhooks
  if [[ -n "${WEBHOOK:-}" ]]; then
    rollout sample-controller-webhook
    await_webhooks
    remove_former_policy
  else
    remove_webhook
  fi
  # +drop:end
  rollout sample-controller
}

rollout() {
  kubectl rollout status "deployment/$1" --namespace="${NAMESPACE}" --timeout=5m
}

# stop_pods NAME deletes that Deployment and waits until its Pods have ended. They would fail without
# the rights that are deleted next.
stop_pods() {
  delete_here --cascade=foreground --timeout=2m "deployment/$1"
}

# +drop:webhooks
# remove_former_policy removes the NetworkPolicy of earlier versions, for the controller's Pods.
remove_former_policy() {
  delete_here networkpolicy/sample-controller-webhook
}

# replace_webhook_server IMG applies the Deployment of the webhooks and what it needs, and waits for its
# Pods, where the Service exists already: earlier versions served the webhooks in the controller's
# Pods, and the Service must not change over to Pods that are not ready.
replace_webhook_server() {
  local service
  service=$(kubectl get service/sample-controller-webhook --namespace="${NAMESPACE}" --ignore-not-found --output=name)
  [[ -n "${service}" ]] || return 0
  manifests "$1" | kubectl apply --selector=app.kubernetes.io/name=sample-controller-webhook -f -
  rollout sample-controller-webhook
}

# await_webhooks waits until Foos of v1beta1 can be created: the nodes route requests for a Service to
# new Pods a while after those are ready. A LIST would need no webhook where there are no Foos yet.
await_webhooks() {
  retry 30 "the API server does not reach the webhooks, or refuses Foos" try_v1beta1
}

# try_v1beta1 fails unless the API server serves v1beta1 and reaches the webhook that converts from it.
try_v1beta1() {
  kubectl create --dry-run=server --request-timeout=10s -f - <<FOO
apiVersion: samplecontroller.k8s.io/v1beta1
kind: Foo
metadata:
  generateName: check-
  namespace: ${NAMESPACE}
spec:
  deployment:
    name: check
FOO
}

# stop_converting makes the API server serve v1alpha1 alone, which Foos are stored as. It updates the
# discovery cache of kubectl, which would otherwise prefer v1beta1 for hours.
stop_converting() {
  local strategy
  strategy=$(kubectl get crd/foos.samplecontroller.k8s.io --ignore-not-found -o 'jsonpath={.spec.conversion.strategy}')
  [[ "${strategy}" == Webhook ]] || return 0
  kubectl apply -f "${ROOT}/artifacts/examples/crd.yaml"
  retry 60 "the API server still serves v1beta1 of Foos" v1beta1_is_gone
}

v1beta1_is_gone() {
  ! kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1 &&
    kubectl api-resources --api-group=samplecontroller.k8s.io | grep -q samplecontroller.k8s.io/v1alpha1
}

# remove_webhook removes the webhooks: first the configurations that make the API server call
# them, then the Service.
remove_webhook() {
  delete mutatingwebhookconfigurations,validatingwebhookconfigurations sample-controller-webhook
  delete_here service/sample-controller-webhook
  stop_pods sample-controller-webhook
  remove_former_policy
  kubectl kustomize "${DEPLOY}/with-webhook" | delete --selector=app.kubernetes.io/name=sample-controller-webhook -f -
  delete_here secret/sample-controller-webhook
}
# +drop:end

# down deletes the objects of our kinds first, while the controllers still exist, and the policies
# last.
down() {
  # +drop:webhooks
  # The garbage collector watches Foos in the preferred version, v1beta1: if the API server ceased to
  # serve it now, it would miss that they are deleted. Without an answer they cannot be deleted.
  try_v1beta1 >/dev/null 2>&1 || stop_converting
  # +drop:end
  delete_objects
  remove_webhook # +drop:webhooks
  stop_pods sample-controller
  delete --timeout=5m -f "${DEPLOY}/install.yaml"
  delete -k "${DEPLOY}/policy-namespaces"
  delete -k "${DEPLOY}/policy-users"
}

crds() {
  local file args=("$@")
  for file in "${ROOT}"/artifacts/examples/*crd.yaml; do
    args+=(-f "${file}")
  done
  kubectl "${args[@]}"
}

install_crds() {
  crds apply
  # To wait for a condition fails while the status has none at all.
  crds wait --for=jsonpath='{.status.conditions}' --timeout=1m
  crds wait --for=condition=Established --timeout=1m
}

uninstall_crds() {
  delete_objects
  crds delete --ignore-not-found --timeout=5m
}

# delete_objects deletes the objects of our kinds and waits until what they own is gone. The
# CRDs must still exist: without them the garbage collector cannot resolve the owners of their
# objects, and keeps them.
delete_objects() {
  local file found resources
  resources=$(dependents)
  for file in "${ROOT}"/artifacts/examples/*crd.yaml; do
    found=$(kubectl get -f "${file}" --ignore-not-found --output='jsonpath={.metadata.name} {.spec.names.kind}')
    [[ -n "${found}" ]] || continue
    kubectl delete "${found% *}" --all --all-namespaces --timeout=5m
    retry 300 "the garbage collector has not deleted what ${found#* }s own" none_owned "${found#* }" "${resources}"
  done
}

# none_owned KIND RESOURCES fails, and prints them, if there are objects of these resources that an object of the
# kind owns. Objects without such an owner belong to users and stay.
none_owned() {
  local left
  left=$(kubectl get "$2" --all-namespaces --selector=app.kubernetes.io/managed-by=sample-controller \
    --output='jsonpath={range .items[?(@.metadata.ownerReferences[*].kind=="'"$1"'")]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}') || return
  echo "${left}"
  [[ -z "${left}" ]]
}

# dependents prints the resources that the controllers create, and watch, with commas in between. The role has one
# rule for each resource.
dependents() {
  kubectl create --dry-run=client --namespace=default -f "${DEPLOY}/namespaced/role.yaml" \
    --output='jsonpath={range .rules[*]}{.resources[0]}.{.apiGroups[0]} {.verbs}{"\n"}{end}' |
    sed -n '/"create".*"watch"/s/\.* .*//p' | paste -sd, -
}

case "$*" in
  'image '?* | 'push '?* | 'up '?* | down | install_crds | uninstall_crds) "$@" ;;
  image* | push* | up*) die "IMG is not set; give IMG=registry.example.com/sample-controller:TAG" ;;
  *) die "usage: $0 image IMG | push IMG | up IMG | down | install_crds | uninstall_crds" ;;
esac
