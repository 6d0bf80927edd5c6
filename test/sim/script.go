/*
Copyright The sample-controller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package sim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Script returns the operation as a command of kubectl, or as a comment if there is none.
func (op Op) Script() string {
	switch op.Verb {
	case CreateFoo:
		return apply("samplecontroller.k8s.io/v1alpha1", "Foo", op.Foo, op.fooSpec())
	case ScaleFoo, SetImage, Rename:
		return fmt.Sprintf("kubectl patch foo %s --type=merge -p '%s'", op.Foo, op.FooPatch())
	case Swap:
		return fmt.Sprintf(`a=$(kubectl get foo %s -o jsonpath={.spec.deploymentName}) b=$(kubectl get foo %s -o jsonpath={.spec.deploymentName})
kubectl patch foo %s --type=merge -p '{"spec":{"deploymentName":"'"$b"'"}}'
kubectl patch foo %s --type=merge -p '{"spec":{"deploymentName":"'"$a"'"}}'`, op.Foo, op.Other, op.Foo, op.Other)
	case DeleteFoo:
		return fmt.Sprintf("kubectl delete foo %s --wait=false --cascade=%s", op.Foo, strings.ToLower(string(op.Propagation)))
	case RecreateFoo:
		return fmt.Sprintf("kubectl get foo %s -o yaml | kubectl replace --force -f -", op.Foo)
	case AddCondition:
		return fmt.Sprintf(`kubectl patch foo %s --subresource=status --type=json -p '[{"op":"add","path":"/status/conditions/-","value":{"type":"Theirs",...}}]'`, op.Foo)
	case CreateForeign:
		return fmt.Sprintf("kubectl create deployment %s --image=nginx:foreign", op.Deployment)
	case CopyDeployment:
		return fmt.Sprintf("kubectl get deployment %s -o yaml | sed -e 's/^  name: .*/  name: %s/' -e '/^  \\(uid\\|resourceVersion\\):/d' | kubectl create -f -", op.Deployment, op.Other)
	case EditDeployment:
		return op.edit()
	case DeleteDeployment:
		return fmt.Sprintf("kubectl delete deployment %s --wait=false --cascade=%s", op.Deployment, strings.ToLower(string(op.Propagation)))
	case Rewrite:
		return fmt.Sprintf("# A MutatingAdmissionPolicy puts %s before the images of Deployments.", Mirror)
	}
	return "# " + string(op.Verb)
}

func (op Op) edit() string {
	name := op.Deployment
	switch op.Edit {
	case EditReplicas:
		return fmt.Sprintf("kubectl scale deployment %s --replicas=%d", name, op.Replicas)
	case EditImage:
		return fmt.Sprintf("kubectl set image deployment/%s nginx=nginx:theirs", name)
	case EditUnlabel:
		return fmt.Sprintf("kubectl label deployment %s app.kubernetes.io/managed-by-", name)
	case EditOtherFields:
		return patchDeployment(name, otherFields)
	case EditPause:
		return "kubectl rollout pause deployment/" + name
	case EditResume:
		return "kubectl rollout resume deployment/" + name
	case EditRecreate:
		return patchDeployment(name, op.DeploymentPatch())
	case EditRelease:
		return fmt.Sprintf(`kubectl patch deployment %s --type=merge -p '{"metadata":{"ownerReferences":null}}'`, name)
	case EditHandOver:
		return fmt.Sprintf(`kubectl patch deployment %s --type=merge -p '{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"%s","uid":"'"$(kubectl get foo %s -o jsonpath={.metadata.uid})"'","controller":true,"blockOwnerDeletion":true}]}}'`, name, op.Foo, op.Foo)
	case EditLargeAnnotation:
		return fmt.Sprintf(`kubectl annotate deployment %s large="$(head -c %d /dev/zero | tr '\0' x)"`, name, largeAnnotation)
	case EditAskAdoption:
		return fmt.Sprintf("kubectl annotate deployment %s samplecontroller.k8s.io/adopt-by=%s --overwrite", name, op.Foo)
	case EditNoController:
		return fmt.Sprintf(`kubectl patch deployment %s --type=json -p '[{"op":"add","path":"/metadata/ownerReferences/0/controller","value":false}]'`, name)
	case EditUnblock:
		return fmt.Sprintf(`kubectl patch deployment %s --type=json -p '[{"op":"add","path":"/metadata/ownerReferences/0/blockOwnerDeletion","value":false}]'`, name)
	case EditAddFinalizer:
		return fmt.Sprintf(`kubectl patch deployment %s --type=merge -p '{"metadata":{"finalizers":["%s"]}}'`, name, HoldFinalizer)
	case EditRemoveFinalizer:
		return fmt.Sprintf(`kubectl patch deployment %s --type=merge -p '{"metadata":{"finalizers":null}}'`, name)
	}
	return "# edit " + name + ": " + string(op.Edit)
}

// FooPatch returns the merge patch that changes the Foo, or "" if the verb needs another
// request.
func (op Op) FooPatch() string {
	switch op.Verb {
	case ScaleFoo:
		return fmt.Sprintf(`{"spec":{"replicas":%d}}`, op.Replicas)
	case SetImage:
		return fmt.Sprintf(`{"spec":{"image":%s}}`, orNull(op.NewImage))
	case Rename:
		return fmt.Sprintf(`{"spec":{"deploymentName":%s}}`, quoted(op.Deployment))
	}
	return ""
}

// DeploymentPatch returns the strategic merge patch that edits the Deployment, or "" if
// the patch depends on the present owner references.
func (op Op) DeploymentPatch() string {
	switch op.Edit {
	case EditReplicas:
		return fmt.Sprintf(`{"spec":{"replicas":%d}}`, op.Replicas)
	case EditImage:
		return `{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:theirs"}]}}}}`
	case EditUnlabel:
		return `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`
	case EditOtherFields:
		return otherFields
	case EditPause:
		return `{"spec":{"paused":true}}`
	case EditResume:
		return `{"spec":{"paused":null}}`
	case EditRecreate:
		return `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`
	case EditRelease:
		return `{"metadata":{"ownerReferences":[{"$patch":"replace"}]}}`
	case EditAskAdoption:
		return fmt.Sprintf(`{"metadata":{"annotations":{"samplecontroller.k8s.io/adopt-by":"%s"}}}`, op.Foo)
	case EditAddFinalizer:
		return fmt.Sprintf(`{"metadata":{"finalizers":["%s"]}}`, HoldFinalizer)
	case EditRemoveFinalizer:
		return fmt.Sprintf(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["%s"]}}`, HoldFinalizer)
	}
	return ""
}

// otherFields is a patch of fields that the controller does not own.
const otherFields = `{"metadata":{"labels":{"theirs":"kept"},"annotations":{"theirs":"kept"}},"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"sidecar:1"}]}}}}`

func (op Op) fooSpec() string {
	if op.Deployment == "" {
		return ""
	}
	spec := fmt.Sprintf("{deploymentName: %s, replicas: %d", op.Deployment, op.Replicas)
	if op.NewImage != "" {
		spec += ", image: " + op.NewImage
	}
	return "spec: " + spec + "}\n"
}

func apply(version, kind, name, rest string) string {
	return fmt.Sprintf("kubectl create -f - <<EOF\napiVersion: %s\nkind: %s\nmetadata: {name: %s}\n%sEOF", version, kind, name, rest)
}

func patchDeployment(name, patch string) string {
	return fmt.Sprintf("kubectl patch deployment %s -p '%s'", name, patch)
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return quoted(s)
}

func quoted(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("encoding a string: %v", err))
	}
	return string(data)
}
