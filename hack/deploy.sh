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
# Installs the controller of an image, or the CRDs alone, in the cluster that kubectl talks to,
# or removes them with all that the controller made.
#
#   hack/deploy.sh up IMG
#   hack/deploy.sh down
#   hack/deploy.sh install-crds
#   hack/deploy.sh uninstall-crds
#
# +drop:webhooks
#   WEBHOOK   not empty for admission and conversion of Foos as well
# +drop:end
#   KUBECTL   default kubectl

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PLAIN="${ROOT}/artifacts/deploy/install.yaml"
INSTALL="${PLAIN}"
# +drop:webhooks
[[ -z "${WEBHOOK:-}" ]] || INSTALL="${ROOT}/artifacts/deploy/install-webhook.yaml"
# +drop:end
NAMESPACE=sample-controller-system
# The image that the manifests name.
PLACEHOLDER="image: sample-controller:latest"

kubectl() {
  command "${KUBECTL:-kubectl}" "$@"
}

# manifests IMG prints them with that image.
manifests() {
  local manifests
  manifests=$(<"${INSTALL}")
  [[ "${manifests}" == *"${PLACEHOLDER}"* ]] || die "${INSTALL} does not say '${PLACEHOLDER}'"
  printf '%s\n' "${manifests//"${PLACEHOLDER}"/image: "$1"}"
}

up() {
  [[ -n "$1" ]] || die "IMG is not set; run make deploy IMG=registry.example.com/sample-controller:TAG"
  # +drop:webhooks
  [[ -z "${WEBHOOK:-}" ]] || replace_webhook_server "$1"
  # +drop:end
  manifests "$1" | kubectl apply -f -
  # +drop:webhooks
  if [[ -n "${WEBHOOK:-}" ]]; then
    rollout sample-controller-webhook
    await_webhooks
    remove_former_policy
  else
    stop_converting
    remove_webhook
  fi
  # +drop:end
  rollout sample-controller
}

# rollout NAME waits until that Deployment runs as its manifest says.
rollout() {
  kubectl rollout status "deployment/$1" --namespace="${NAMESPACE}" --timeout=5m
}

# stop_pods NAME deletes that Deployment and waits until its Pods have ended. They would fail without
# the rights that are deleted next.
stop_pods() {
  kubectl delete --ignore-not-found --namespace="${NAMESPACE}" --cascade=foreground --timeout=2m "deployment/$1"
}

# +drop:webhooks
# remove_former_policy removes the NetworkPolicy of earlier versions, for the controller's Pods.
remove_former_policy() {
  kubectl delete --ignore-not-found --namespace="${NAMESPACE}" networkpolicy/sample-controller-webhook
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

# v1beta1_answers is true if the API server serves v1beta1 and reaches the webhook that converts to it.
# Without the timeout, and with --raw in spite of it, kubectl would retry for minutes while the API
# server answers that its cache is not filled yet.
v1beta1_answers() {
  kubectl get foos.v1beta1.samplecontroller.k8s.io --all-namespaces --output=name --request-timeout=10s >/dev/null 2>&1
}

# await_webhooks waits until Foos of v1beta1 can be created: the nodes route requests for a Service to
# new Pods a while after those are ready. A LIST would need no webhook where there are no Foos yet.
await_webhooks() {
  local start="${SECONDS}" answer
  until answer=$(kubectl create --dry-run=server --request-timeout=10s -f - 2>&1 <<FOO
apiVersion: samplecontroller.k8s.io/v1beta1
kind: Foo
metadata:
  generateName: check-
  namespace: ${NAMESPACE}
spec:
  deployment:
    name: check
FOO
  ); do
    ((SECONDS < start + 30)) || die "the API server does not reach the webhooks, or refuses Foos: ${answer}"
    sleep 1
  done
}

# forget_v1beta1 waits until the API server no longer serves v1beta1, and updates the
# discovery cache of kubectl, which would otherwise still prefer that version.
forget_v1beta1() {
  local tries=60
  while kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1 >/dev/null 2>&1; do
    ((tries-- > 0)) || die "the API server still serves v1beta1 of Foos"
    sleep 1
  done
  kubectl api-resources --api-group=samplecontroller.k8s.io >/dev/null
}

# stop_converting makes the API server serve v1alpha1 alone, which Foos are stored as.
stop_converting() {
  local strategy
  strategy=$(kubectl get crd/foos.samplecontroller.k8s.io --ignore-not-found --output='jsonpath={.spec.conversion.strategy}')
  if [[ "${strategy}" == Webhook ]]; then
    kubectl apply -f "${ROOT}/artifacts/examples/crd.yaml"
    forget_v1beta1
  fi
}

# remove_webhook removes the webhooks: first the configurations that make the API server call
# them, then the Service.
remove_webhook() {
  kubectl delete --ignore-not-found mutatingwebhookconfigurations,validatingwebhookconfigurations sample-controller-webhook
  kubectl delete --ignore-not-found --namespace="${NAMESPACE}" service/sample-controller-webhook
  stop_pods sample-controller-webhook
  remove_former_policy
  kubectl delete --ignore-not-found --namespace="${NAMESPACE}" -k "${ROOT}/artifacts/deploy/webhook/server"
  kubectl delete --ignore-not-found --namespace="${NAMESPACE}" secret/sample-controller-webhook
}
# +drop:end

# kinds prints the kinds that the controllers reconcile, as kind=CRD.
kinds() {
  sed -n -e 's/^  name: //p' -e 's/^    kind: //p' "${ROOT}"/artifacts/examples/*crd.yaml |
    while read -r crd && read -r kind; do
      echo "${kind}=${crd}"
    done
}

# dependents prints the resources that the controllers create for those, and watch, with
# commas in between. The role has one rule for each resource.
dependents() {
  awk '
    function print_dependent() {
      if (verbs ~ / create / && verbs ~ / watch /) print resource (group == "\"\"" ? "" : "." group)
    }
    /apiGroups:$/ { print_dependent(); verbs = " " }
    /:$/ { field = $NF; next }
    field == "apiGroups:" { group = $2 }
    field == "resources:" { resource = $2 }
    field == "verbs:" { verbs = verbs $2 " " }
    END { print_dependent() }' "${ROOT}/artifacts/deploy/namespaced/role.yaml" | paste -sd, -
}

# down deletes the objects of our kinds first, while the controllers still exist, and the policies
# last.
down() {
  # +drop:webhooks
  # The garbage collector watches Foos in the preferred version, v1beta1: if the API server ceased to
  # serve it now, it would miss that they are deleted. Without an answer they cannot be deleted.
  v1beta1_answers || stop_converting
  # +drop:end
  delete_objects
  # +drop:webhooks
  remove_webhook
  # +drop:end
  stop_pods sample-controller
  kubectl delete --ignore-not-found --timeout=5m -f "${PLAIN}"
  kubectl delete --ignore-not-found -k "${ROOT}/artifacts/deploy/policy"
  kubectl delete --ignore-not-found -k "${ROOT}/artifacts/deploy/policy-users"
}

# crds CMD... runs kubectl with these arguments and the files of all CRDs.
crds() {
  local file args=("$@")
  for file in "${ROOT}"/artifacts/examples/crd.yaml "${ROOT}"/artifacts/examples/*-crd.yaml; do
    [[ ! -e "${file}" ]] || args+=(-f "${file}")
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
  local kind crd resources deleted=""
  resources=$(dependents)
  for kind in $(kinds); do
    crd=$(kubectl get "crd/${kind#*=}" --ignore-not-found --output=name)
    if [[ -n "${crd}" ]]; then
      kubectl delete "${kind#*=}" --all --all-namespaces --timeout=5m
      deleted+=" ${kind%%=*}"
    fi
  done
  # Objects without such an owner belong to users and stay.
  for kind in ${deleted}; do
    wait_for_owned "${kind}" "${resources}"
  done
}

# owned_objects KIND RESOURCES prints the objects of these resources that an object of KIND
# owns.
owned_objects() {
  kubectl get "$2" --all-namespaces --selector=app.kubernetes.io/managed-by=sample-controller \
    --output='jsonpath={range .items[?(@.metadata.ownerReferences[*].kind=="'"$1"'")]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}'
}

# wait_for_owned KIND RESOURCES waits until the garbage collector has deleted them.
wait_for_owned() {
  local tries=300 left
  until left=$(owned_objects "$1" "$2") && [[ -z "${left}" ]]; do
    ((tries-- > 0)) || die "the garbage collector has not deleted the objects that ${1}s own: ${left}"
    sleep 1
  done
}

case "${1:-}" in
  up) up "${2:-}" ;;
  down) down ;;
  install-crds) install_crds ;;
  uninstall-crds) uninstall_crds ;;
  *) die "usage: $0 up IMG | down | install-crds | uninstall-crds" ;;
esac
