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
# Installs the controller of an image in the cluster that kubectl talks to, or
# removes it with all that it made.
#
#   hack/deploy.sh up IMG
#   hack/deploy.sh down
#
#   WEBHOOK   not empty for admission and conversion of Foos as well
#   KUBECTL   default kubectl

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PLAIN="${ROOT}/artifacts/deploy/install.yaml"
COMPLETE="${ROOT}/artifacts/deploy/install-webhook.yaml"
INSTALL="${PLAIN}"
[[ -z "${WEBHOOK:-}" ]] || INSTALL="${COMPLETE}"
# What the controller works for, as kind=CRD.
KINDS=(Foo=foos.samplecontroller.k8s.io Memcached=memcacheds.cache.example.com CronTab=crontabs.alpha.ianlewis.org)
# What it makes for them.
MADE=deployments,jobs
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
  printf '%s\n' "${manifests/"${PLACEHOLDER}"/image: "$1"}"
}

up() {
  [[ -n "$1" ]] || die "no image's name; say make deploy IMG=registry.example.com/sample-controller:TAG"
  manifests "$1" | kubectl apply -f -
  [[ -n "${WEBHOOK:-}" ]] || remove_webhook
  kubectl rollout status deployment/sample-controller --namespace="${NAMESPACE}" --timeout=5m
}

# forget_v1beta1 returns when the API server serves it no more and kubectl, which prefers
# it, knows that.
forget_v1beta1() {
  local tries=60
  while kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1 >/dev/null 2>&1; do
    ((tries-- > 0)) || die "the API server still serves v1beta1 of Foos"
    sleep 1
  done
  kubectl api-resources --api-group=samplecontroller.k8s.io >/dev/null
}

# remove_webhook takes the webhooks away, if they are there: first nobody asks any more,
# then nobody answers. Foos are stored as v1alpha1, which needs no conversion.
remove_webhook() {
  local crd=foos.samplecontroller.k8s.io configurations=mutatingwebhookconfigurations,validatingwebhookconfigurations
  if [[ "$(kubectl get "crd/${crd}" --ignore-not-found --output='jsonpath={.spec.conversion.strategy}')" == Webhook ]]; then
    kubectl apply -f "${ROOT}/artifacts/examples/crd.yaml"
    forget_v1beta1
  fi
  kubectl delete --ignore-not-found "${configurations}" sample-controller-webhook
  kubectl delete --ignore-not-found --namespace="${NAMESPACE}" service/sample-controller-webhook networkpolicy/sample-controller-webhook \
    role/sample-controller-webhook rolebinding/sample-controller-webhook secret/sample-controller-webhook
  kubectl delete --ignore-not-found clusterrole/sample-controller-webhook clusterrolebinding/sample-controller-webhook
}

# down removes Foos and their like first, while all that takes care of them is there.
# The garbage collector would not find the owners of their Deployments once the CRDs
# are gone.
down() {
  local kind deleted=""
  remove_webhook
  for kind in "${KINDS[@]}"; do
    if kubectl get "crd/${kind#*=}" --ignore-not-found --output=name | grep -q .; then
      kubectl delete "${kind#*=}" --all --all-namespaces --timeout=5m
      deleted+=" ${kind%%=*}"
    fi
  done
  # What none of them owns is not ours to wait for.
  for kind in ${deleted}; do
    wait_for_owned "${kind}"
  done
  kubectl delete --ignore-not-found --timeout=5m -f "${PLAIN}"
}

# owned_objects KIND
owned_objects() {
  kubectl get "${MADE}" --all-namespaces --selector=app.kubernetes.io/managed-by=sample-controller \
    --output='jsonpath={range .items[?(@.metadata.ownerReferences[*].kind=="'"$1"'")]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}'
}

# wait_for_owned KIND
wait_for_owned() {
  local tries=300 left
  until left=$(owned_objects "$1") && [[ -z "${left}" ]]; do
    ((tries-- > 0)) || die "the garbage collector has not removed what ${1}s owned: ${left}"
    sleep 1
  done
}

case "${1:-}" in
  up) up "${2:-}" ;;
  down) down ;;
  *) die "usage: $0 up IMG | down" ;;
esac
