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

# The ValidatingAdmissionPolicies that hack/update-codegen.sh derives from the CRDs and roles.
# docs/security.md describes them.

# policy prints a policy of these resources, [{group, resource}], and its binding.
def policy($name; $resources; $operations; $conditions; $validations):
  {apiVersion: "admissionregistration.k8s.io/v1", kind: "ValidatingAdmissionPolicy", metadata: {name: $name}, spec: {
    failurePolicy: "Fail",
    matchConstraints: {resourceRules: [
      $resources | group_by(.group)[] | {apiGroups: [.[0].group], apiVersions: ["*"], resources: map(.resource), operations: $operations}
    ]},
    matchConditions: $conditions,
    validations: [$validations[] | . + {reason: "Forbidden"}]
  }},
  {apiVersion: "admissionregistration.k8s.io/v1", kind: "ValidatingAdmissionPolicyBinding", metadata: {name: $name}, spec: {
    policyName: $name, validationActions: ["Deny"]
  }};

# group prints the group of a kind that is given as GROUP/VERSION/KIND.
def group: split("/")[0];

# dependents reads a role and prints what its controllers create and watch. $ours are our kinds.
def dependents($ours):
  [.rules[] | select(.verbs | index("create") and index("watch")) | .apiGroups[] as $group
    | select($ours | map(group) | index($group) | not) | {group: $group, resource: .resources[]}] | unique;

# Instances for sets of namespaces have a service account of this name each.
def our_service_account: {name: "service-account",
  expression: "request.userInfo.username.startsWith('system:serviceaccount:') && request.userInfo.username.endsWith(':sample-controller')"};

# service_account reads the role with all rights and prints the policies for what our service
# account writes. $ours are our kinds; the first one adopts.
def service_account($ours):
  dependents($ours) as $dependents
  | "exists(r, r.?controller.orValue(false)" as $controller
  | "\($controller) && r.apiVersion.split('/')[0] in [\($ours | map("'\(group)'") | unique | join(", "))])" as $owned
  | "r.?controller.orValue(false) && r.apiVersion + '/' + r.kind in [\($ours | map("'\(.)'") | join(", "))]" as $ours_now
  | "metadata.?ownerReferences.orValue([])" as $references
  | policy("sample-controller-dependents"; $dependents; ["CREATE", "UPDATE", "DELETE"]; [our_service_account]; [
      {expression: "request.namespace != 'kube-system'", message: "sample-controller writes nothing in kube-system"},
      # The variant for a namespace may run in the one that it serves.
      {expression: "request.namespace != request.userInfo.username.split(':')[2] || !authorizer.group(request.resource.group).resource(request.resource.resource).check('create').allowed()",
       message: "sample-controller, if it serves the cluster, writes nothing in the namespace in which it runs"},
      # The garbage collector keeps for ever what has an owner of a version or kind that does not exist.
      {expression: "request.operation == 'DELETE' || object.\($references).exists(r, \($ours_now)) && object.\($references).all(r, \($ours_now) || request.operation == 'UPDATE' && r in oldObject.\($references)) && (request.operation == 'CREATE' || oldObject.\($references).all(o, object.\($references).exists(r, r.uid == o.uid))) || request.operation == 'UPDATE' && object.\($references).\($owned) && object.\($references) == oldObject.\($references)",
       message: "sample-controller writes only objects with a controller reference to a kind of its own, and neither adds nor removes others"},
      {expression: "request.operation == 'DELETE' || object.metadata.?finalizers == (request.operation == 'UPDATE' ? oldObject.metadata.?finalizers : optional.none())",
       message: "sample-controller sets and removes no finalizers"},
      # Without a policy the API server orphans the Pods of Jobs.
      {expression: "request.operation != 'DELETE' || request.options.?propagationPolicy.orValue('') in ['Background', 'Foreground']",
       message: "sample-controller leaves nothing behind that an object which it deletes owns"},
      {expression: "request.operation == 'CREATE' || oldObject.\($references).\($owned) || request.operation == 'UPDATE' && !oldObject.\($references).\($controller)) && request.resource.resource == 'deployments' && '\($ours[0] | group)/adopt-by' in oldObject.metadata.?annotations.orValue({})",
       message: "sample-controller changes and deletes only what a kind of its own controls, or what asks to be adopted"}
    ]),
    ($dependents | map(select(.resource == "services")) | select(. != [])
      | policy("sample-controller-services"; .; ["CREATE", "UPDATE"]; [our_service_account]; [
        # Users may have changed the type, and externalIPs, of one that the controller repairs.
        {expression: "request.operation == 'CREATE' ? object.spec.type == 'ClusterIP' && !has(object.spec.externalIPs) : object.spec.transformMap(k, v, !(k in ['ports', 'selector']), v) == oldObject.spec.transformMap(k, v, !(k in ['ports', 'selector']), v)",
         message: "sample-controller makes no Service reachable from outside of the cluster; create only Services of type ClusterIP, without externalIPs"}
      ])),
    # A template that the controller leaves as it is passes: users may have changed it.
    policy("sample-controller-pods"; $dependents | map(select(.group == ("apps", "batch"))); ["CREATE", "UPDATE"];
      [our_service_account, {name: "template-changed", expression: "request.operation == 'CREATE' || object.spec.template != oldObject.spec.template"}]; [
      {expression: "!object.spec.template.spec.?volumes.orValue([]).exists(v, has(v.hostPath))",
       message: "sample-controller starts no Pods with a hostPath volume; remove it from the Pod template"},
      {expression: "!object.spec.template.spec.?hostNetwork.orValue(false) && !object.spec.template.spec.?hostPID.orValue(false) && !object.spec.template.spec.?hostIPC.orValue(false)",
       message: "sample-controller starts no Pods in a namespace of the host; unset hostNetwork, hostPID and hostIPC in the Pod template"},
      {expression: "!(object.spec.template.spec.containers + object.spec.template.spec.?initContainers.orValue([])).exists(c, c.?securityContext.?privileged.orValue(false))",
       message: "sample-controller starts no privileged containers; unset securityContext.privileged in the Pod template"},
      # The users of a Job's owner write its whole Pod template, and may name a service account.
      {expression: "request.resource.group == 'batch' || object.spec.template.spec.?serviceAccountName.orValue('') in ['', 'default']",
       message: "sample-controller starts no Pods of another service account than default; unset serviceAccountName in the Pod template"},
      # The Job controller deletes what such a selector selects, as if the Job had started it.
      ($dependents[] | select(.resource == "jobs") | {expression: "!object.spec.?manualSelector.orValue(false)",
       message: "sample-controller starts no Jobs with a selector of their own"})
    ]);

# namespaces reads the role with all rights and prints the policy for service accounts of ours in namespaces
# without the label.
def namespaces($ours):
  "\($ours[0] | group)/dependents" as $label
  | policy("sample-controller-namespaces"; dependents($ours); ["CREATE", "UPDATE", "DELETE"]; [our_service_account]; [{
      expression: "false",
      message: "sample-controller writes only in namespaces with the label \($label)=allowed"
    }])
  | (select(.kind == "ValidatingAdmissionPolicy") | .spec.matchConstraints.namespaceSelector) =
      {matchExpressions: [{key: $label, operator: "NotIn", values: ["allowed"]}]};

# users reads the role of a kind's controller, and prints the policy for those who write that
# kind. The garbage collector and others write neither its spec nor its annotations.
def users($names; $group):
  dependents([$group]) as $dependents
  | policy("sample-controller-\($names.singular)-users"; [{group: $group, resource: $names.plural}]; ["CREATE", "UPDATE"];
      [{name: "acts", expression: "request.operation == 'CREATE' || object.?spec != oldObject.?spec || object.metadata.?annotations != oldObject.metadata.?annotations"}];
      [$dependents[] | {
        expression: "authorizer.group('\(.group)').resource('\(.resource)').namespace(request.namespace).check('create').allowed()",
        messageExpression: "'the \($names.kind) creates \(.resource), which ' + request.userInfo.username + ' may not create in the namespace ' + request.namespace"
      }]);
