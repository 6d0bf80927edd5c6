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

# Makes a template of the Helm chart from the objects of a manifest, with values in place of the
# namespace, and of the image, the replicas and the resources of a Deployment. hack/lib.sh removes
# the quotes around the actions.
#   $values   where replicas and resources are, such as .Values
#   $others   which objects another template has: [[kind, name], ...]
#   $policies whether to print the policies, or all other objects

select(.kind and .kind != "Namespace" and .kind != "CustomResourceDefinition")
| select((.kind | startswith("ValidatingAdmissionPolicy")) == $policies)
| select([.kind, .metadata.name] as $object | all($others[]; . != $object))
| walk(if . == "sample-controller-system" then "{{ toJson .Release.Namespace }}" else . end)
| if .kind == "Deployment" then
    .spec.replicas = "{{ toJson \($values).replicas }}"
    | .spec.template.spec.containers[].image = "{{ toJson .Values.image }}"
    | .spec.template.spec.containers[].resources = "{{ toJson \($values).resources }}"
  else . end
