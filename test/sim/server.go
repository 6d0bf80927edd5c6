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
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// react answers every request but watches.
func (p *process) react(action clienttesting.Action) (bool, runtime.Object, error) {
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := action.(clienttesting.ListActionImpl); ok {
		return true, c.listObject(action.GetResource().Resource), nil
	}
	result, err := c.serve(p, action)
	if err != nil || result == nil {
		return true, nil, err
	}
	return true, result.DeepCopyObject(), nil
}

func (p *process) reactWatch(action clienttesting.Action) (bool, watch.Interface, error) {
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.dead {
		// The informer would pass an error to apimachinery's error handlers, which block
		// their callers by a clock outside the synctest bubble.
		return true, &watcher{results: make(chan watch.Event)}, nil
	}
	return true, c.watch(c.table(action.GetResource().Resource), action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion), nil
}

func (c *simCluster) listObject(resource string) runtime.Object {
	version, objects := c.list(c.table(resource))
	if resource == Foos {
		list := &v1alpha1.FooList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		for _, object := range objects {
			list.Items = append(list.Items, *copyOf(object.(*v1alpha1.Foo)))
		}
		return list
	}
	list := &appsv1.DeploymentList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, object := range objects {
		list.Items = append(list.Items, *copyOf(object.(*appsv1.Deployment)))
	}
	return list
}

var errInjected = errors.New("an injected fault")

func errUnreachable() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// serve answers a request of the controller unless a fault prevents it.
func (c *simCluster) serve(p *process, action clienttesting.Action) (Object, error) {
	if p.dead {
		return nil, errUnreachable()
	}
	c.requests++
	if c.requests > maxRequests {
		c.invariants.violated("rule 15: more than %d requests", maxRequests)
		p.dead = true
	}
	c.doLaterOps()
	if p.dead {
		return nil, errUnreachable()
	}
	name := requestName(action)
	request := fmt.Sprintf("%s %s %s", action.GetVerb(), action.GetResource().Resource, name)
	var failure Failure
	if len(c.failures) > 0 {
		failure, c.failures = c.failures[0], c.failures[1:]
	}
	if err := errorOf(failure, c.table(action.GetResource().Resource), name); err != nil {
		c.logf("  %s: %s", request, failure)
		return nil, err
	}
	result, err := c.apply(action, name)
	c.logf("  %s%s: %s", request, detailOf(action), answer(result, err, failure))
	switch failure {
	case AnswerLost:
		return nil, errUnreachable()
	case KilledAfterWrite:
		c.kill()
		return nil, errUnreachable()
	}
	return result, err
}

// doLaterOps does the operations that waited for this request.
func (c *simCluster) doLaterOps() {
	var due, left []laterOp
	for _, later := range c.later {
		if later.in--; later.in <= 0 {
			due = append(due, later)
		} else {
			left = append(left, later)
		}
	}
	c.later = left
	for _, later := range due {
		c.do(later.op)
	}
}

func requestName(action clienttesting.Action) string {
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		return action.GetObject().(Object).GetName()
	case clienttesting.UpdateActionImpl:
		return action.GetObject().(Object).GetName()
	case interface{ GetName() string }:
		return action.GetName()
	}
	return ""
}

// detailOf returns the patch of a request, for the trace.
func detailOf(action clienttesting.Action) string {
	if patch, ok := action.(clienttesting.PatchAction); ok {
		return " " + string(patch.GetPatch())
	}
	return ""
}

// answer describes the answer to a request, for the trace.
func answer(result Object, err error, failure Failure) string {
	text := "done"
	switch {
	case err != nil:
		text = err.Error()
	case result != nil:
		text = "version " + result.GetResourceVersion()
	}
	if failure != "" {
		text += ", " + string(failure)
	}
	return text
}

// errorOf returns the error of a request that the API server does not apply, nil if it
// applies the request.
func errorOf(failure Failure, t *table, name string) error {
	switch failure {
	case Conflict:
		return apierrors.NewConflict(t.group, name, errInjected)
	case TooMany:
		return apierrors.NewTooManyRequests(errInjected.Error(), 1)
	case Internal:
		return apierrors.NewInternalError(errInjected)
	case Forbidden:
		return apierrors.NewForbidden(t.group, name, errInjected)
	case Unreachable:
		return errUnreachable()
	}
	return nil
}

// apply applies the request.
func (c *simCluster) apply(action clienttesting.Action, name string) (Object, error) {
	t := c.table(action.GetResource().Resource)
	switch action := action.(type) {
	case clienttesting.GetActionImpl:
		c.invariants.noteRead(t, name)
		if object := t.present[name]; object != nil {
			return object, nil
		}
		return nil, apierrors.NewNotFound(t.group, name)
	case clienttesting.CreateActionImpl:
		deployment, ok := action.GetObject().(*appsv1.Deployment)
		if !ok {
			break
		}
		object := c.admit(copyOf(deployment))
		noteManager(object)
		if err := c.create(t, object); err != nil {
			return nil, err
		}
		c.invariants.checkCreate(object)
		return object, nil
	case clienttesting.PatchActionImpl:
		if action.GetSubresource() == "status" {
			return c.patchStatus(t, action)
		}
		return c.patch(t, action)
	case clienttesting.DeleteActionImpl:
		before := c.deployment(name)
		if err := c.remove(t, name, action.GetDeleteOptions()); err != nil {
			return nil, err
		}
		c.invariants.checkDelete(before, action.GetDeleteOptions())
		return nil, nil
	}
	c.invariants.violated("S1: the controller has no reason for the request %s %s", action.GetVerb(), action.GetResource().Resource)
	return nil, apierrors.NewMethodNotSupported(t.group, action.GetVerb())
}

// patch applies a strategic merge patch to a Deployment. A resourceVersion or uid
// in it is a precondition.
func (c *simCluster) patch(t *table, action clienttesting.PatchActionImpl) (Object, error) {
	before := c.deployment(action.GetName())
	if t != c.deployments || before == nil {
		return nil, apierrors.NewNotFound(t.group, action.GetName())
	}
	var sent metav1.PartialObjectMetadata
	if err := json.Unmarshal(action.GetPatch(), &sent); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if sent.ResourceVersion != "" && sent.ResourceVersion != before.ResourceVersion {
		return nil, apierrors.NewConflict(t.group, before.Name, errors.New("the object has been modified"))
	}
	after, err := StrategicMerge(before, string(action.GetPatch()))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	controllers := slices.DeleteFunc(slices.Clone(after.OwnerReferences), func(ref metav1.OwnerReference) bool { return !ptr.Deref(ref.Controller, false) })
	if len(controllers) > 1 || after.UID != before.UID {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}, before.Name, nil)
	}
	after.Status = before.Status
	noteManager(c.admit(after))
	c.replace(t, after)
	c.invariants.checkPatch(before, after)
	return after, nil
}

// fieldManager is the field manager of the controller's writes.
const fieldManager = "sample-controller"

// noteManager records the controller as a writer of the Deployment.
func noteManager(deployment *appsv1.Deployment) {
	if !writtenByController(deployment) {
		deployment.ManagedFields = append(deployment.ManagedFields, metav1.ManagedFieldsEntry{Manager: fieldManager})
	}
}

// writtenByController reports whether the controller has ever written the Deployment. The
// edits of users leave no trace in managed fields here.
func writtenByController(deployment *appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == fieldManager })
}

// StrategicMerge returns the Deployment as the API server stores it after a strategic merge
// patch. It fails where the API server refuses the patch.
func StrategicMerge(deployment *appsv1.Deployment, patch string) (*appsv1.Deployment, error) {
	data, err := json.Marshal(deployment)
	if err != nil {
		return nil, err
	}
	if data, err = strategicpatch.StrategicMergePatch(data, []byte(patch), &appsv1.Deployment{}); err != nil {
		return nil, err
	}
	merged := &appsv1.Deployment{}
	return merged, json.Unmarshal(data, merged)
}

// patchStatus applies a JSON merge patch to the status of a Foo, and to nothing else. A
// resourceVersion in it is a precondition; the API server ignores a uid.
func (c *simCluster) patchStatus(t *table, action clienttesting.PatchActionImpl) (Object, error) {
	before := c.foo(action.GetName())
	switch {
	case t != c.foos || action.GetPatchType() != types.MergePatchType:
		c.invariants.violated("S1: the controller may only merge a status into a Foo")
		return nil, apierrors.NewMethodNotSupported(t.group, action.GetVerb())
	case before == nil:
		return nil, apierrors.NewNotFound(t.group, action.GetName())
	}
	text, err := json.Marshal(before)
	if err == nil {
		text, err = jsonpatch.MergePatch(text, action.GetPatch())
	}
	var merged v1alpha1.Foo
	if err == nil {
		err = json.Unmarshal(text, &merged)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if merged.ResourceVersion != before.ResourceVersion {
		return nil, apierrors.NewConflict(t.group, before.Name, errors.New("the object has been modified"))
	}
	after := copyOf(before)
	after.Status = merged.Status
	c.invariants.checkStatus(before, after)
	c.replace(t, after)
	return after, nil
}

// sameObject compares two objects without their resource versions.
func sameObject(a, b Object) bool {
	if a.GetResourceVersion() != b.GetResourceVersion() {
		b = copyOf(b)
		b.SetResourceVersion(a.GetResourceVersion())
	}
	return equality.Semantic.DeepEqual(a, b)
}

func sameSpec(a, b Object) bool {
	switch a := a.(type) {
	case *v1alpha1.Foo:
		return equality.Semantic.DeepEqual(a.Spec, b.(*v1alpha1.Foo).Spec)
	case *appsv1.Deployment:
		return equality.Semantic.DeepEqual(a.Spec, b.(*appsv1.Deployment).Spec)
	}
	panic(fmt.Sprintf("unexpected %T", a))
}

// imagesOf returns the images of the Pod template.
func imagesOf(deployment *appsv1.Deployment) string {
	var images []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		images = append(images, container.Name+"="+container.Image)
	}
	return strings.Join(images, ",")
}
