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

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/random"
)

// What the API server in memory answers to the controller's requests, or what
// comes in between.

// react answers every request but watches.
func (p *simProcess) react(action clienttesting.Action) (bool, runtime.Object, error) {
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

func (p *simProcess) reactWatch(action clienttesting.Action) (bool, watch.Interface, error) {
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.dead {
		// An error would be reported to apimachinery's error handlers, which hold
		// their callers up by a clock that is none of the bubble's.
		return true, &simStream{results: make(chan watch.Event)}, nil
	}
	return true, c.watch(c.table(action.GetResource().Resource), action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion), nil
}

func (c *simCluster) listObject(resource string) runtime.Object {
	version, objects := c.list(c.table(resource))
	if resource == random.Foos {
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

func errUnreachable() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// serve answers a request that can fail.
func (c *simCluster) serve(p *simProcess, action clienttesting.Action) (simObject, error) {
	if p.dead {
		return nil, errUnreachable()
	}
	c.requests++
	if c.requests > maxSimRequests {
		c.judge.report("rule 15: more than %d requests", maxSimRequests)
		p.dead = true
	}
	c.interpose()
	if p.dead {
		return nil, errUnreachable()
	}
	name := requestName(action)
	words := fmt.Sprintf("%s %s %s", action.GetVerb(), action.GetResource().Resource, name)
	var failure random.Failure
	if len(c.failures) > 0 {
		failure, c.failures = c.failures[0], c.failures[1:]
	}
	if err := refusalOf(failure, c.table(action.GetResource().Resource), name); err != nil {
		c.logf("  %s: %s", words, failure)
		return nil, err
	}
	result, err := c.apply(action, name)
	c.logf("  %s%s: %s", words, detailOf(action), outcomeOf(result, err, failure))
	switch failure {
	case random.AnswerLost:
		return nil, errUnreachable()
	case random.KilledBefore:
		c.kill()
		return nil, errUnreachable()
	}
	return result, err
}

// interpose lets operations happen that waited for this request.
func (c *simCluster) interpose() {
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
		return action.GetObject().(simObject).GetName()
	case clienttesting.UpdateActionImpl:
		return action.GetObject().(simObject).GetName()
	case interface{ GetName() string }:
		return action.GetName()
	}
	return ""
}

// detailOf returns what matters of a request's body.
func detailOf(action clienttesting.Action) string {
	switch action := action.(type) {
	case clienttesting.PatchActionImpl:
		return " " + string(action.GetPatch())
	case clienttesting.UpdateActionImpl:
		if foo, ok := action.GetObject().(*v1alpha1.Foo); ok {
			return "/" + action.GetSubresource() + " " + summary(foo)
		}
	}
	return ""
}

func outcomeOf(result simObject, err error, failure random.Failure) string {
	words := "done"
	switch {
	case err != nil:
		words = err.Error()
	case result != nil:
		words = "version " + result.GetResourceVersion()
	}
	if failure != "" {
		words += ", " + string(failure)
	}
	return words
}

// refusalOf returns the error of a request that is not applied.
func refusalOf(failure random.Failure, t *simTable, name string) error {
	switch failure {
	case random.Conflict:
		return apierrors.NewConflict(t.group, name, errors.New("a fault of the test's"))
	case random.TooMany:
		return apierrors.NewTooManyRequests("a fault of the test's", 1)
	case random.Internal:
		return apierrors.NewInternalError(errors.New("a fault of the test's"))
	case random.Forbidden:
		return apierrors.NewForbidden(t.group, name, errors.New("a fault of the test's"))
	case random.Unreachable:
		return errUnreachable()
	}
	return nil
}

// apply does what the request says.
func (c *simCluster) apply(action clienttesting.Action, name string) (simObject, error) {
	t := c.table(action.GetResource().Resource)
	switch action := action.(type) {
	case clienttesting.GetActionImpl:
		c.judge.sawRead(t, name)
		if object := t.present[name]; object != nil {
			return object, nil
		}
		return nil, apierrors.NewNotFound(t.group, name)
	case clienttesting.CreateActionImpl:
		deployment, ok := action.GetObject().(*appsv1.Deployment)
		if !ok {
			break
		}
		object := copyOf(deployment)
		if err := c.create(t, object); err != nil {
			return nil, err
		}
		c.judge.sawCreate(object)
		return object, nil
	case clienttesting.PatchActionImpl:
		return c.patch(t, action)
	case clienttesting.UpdateActionImpl:
		return c.putStatus(t, action)
	case clienttesting.DeleteActionImpl:
		before := c.deployment(name)
		if err := c.remove(t, name, action.GetDeleteOptions()); err != nil {
			return nil, err
		}
		c.judge.sawDelete(before)
		return nil, nil
	}
	c.judge.report("S1: %s %s is none of the controller's requests", action.GetVerb(), action.GetResource().Resource)
	return nil, apierrors.NewMethodNotSupported(t.group, action.GetVerb())
}

// patch applies a strategic merge patch to a Deployment. A resourceVersion or uid
// in it is a precondition.
func (c *simCluster) patch(t *simTable, action clienttesting.PatchActionImpl) (simObject, error) {
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
	after, err := strategicMerge(before, string(action.GetPatch()))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	controllers := slices.DeleteFunc(slices.Clone(after.OwnerReferences), func(ref metav1.OwnerReference) bool { return !ptr.Deref(ref.Controller, false) })
	if len(controllers) > 1 || after.UID != before.UID {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}, before.Name, nil)
	}
	after.Status = before.Status
	c.replace(t, after)
	c.judge.sawPatch(before, after)
	return after, nil
}

func strategicMerge(deployment *appsv1.Deployment, patch string) (*appsv1.Deployment, error) {
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

// putStatus replaces the status of a Foo, and nothing else.
func (c *simCluster) putStatus(t *simTable, action clienttesting.UpdateActionImpl) (simObject, error) {
	sent, ok := action.GetObject().(*v1alpha1.Foo)
	if !ok || action.GetSubresource() != "status" {
		c.judge.report("S1: of a Foo only the status is the controller's")
		return nil, apierrors.NewMethodNotSupported(t.group, action.GetVerb())
	}
	before := c.foo(sent.Name)
	switch {
	case before == nil:
		return nil, apierrors.NewNotFound(t.group, sent.Name)
	case sent.UID != "" && sent.UID != before.UID || sent.ResourceVersion != "" && sent.ResourceVersion != before.ResourceVersion:
		return nil, apierrors.NewConflict(t.group, sent.Name, errors.New("the object has been modified"))
	}
	after := copyOf(before)
	// On the wire times lose their fractions of a second.
	data, err := json.Marshal(sent.Status)
	if err != nil {
		return nil, err
	}
	after.Status = v1alpha1.FooStatus{}
	if err := json.Unmarshal(data, &after.Status); err != nil {
		return nil, err
	}
	c.judge.sawStatus(before, after)
	c.replace(t, after)
	return after, nil
}

// sameObject compares all but the version.
func sameObject(a, b simObject) bool {
	if a.GetResourceVersion() != b.GetResourceVersion() {
		b = copyOf(b)
		b.SetResourceVersion(a.GetResourceVersion())
	}
	return equality.Semantic.DeepEqual(a, b)
}

func sameSpec(a, b simObject) bool {
	switch a := a.(type) {
	case *v1alpha1.Foo:
		return equality.Semantic.DeepEqual(a.Spec, b.(*v1alpha1.Foo).Spec)
	case *appsv1.Deployment:
		return equality.Semantic.DeepEqual(a.Spec, b.(*appsv1.Deployment).Spec)
	}
	panic(fmt.Sprintf("unexpected %T", a))
}

// imagesOf identifies what a Deployment's Pods are to run.
func imagesOf(deployment *appsv1.Deployment) string {
	var words []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		words = append(words, container.Name+"="+container.Image)
	}
	return strings.Join(words, ",")
}
