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
	"errors"
	"fmt"
	"net"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

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

// apply applies the request, and checks the invariants.
func (c *simCluster) apply(action clienttesting.Action, name string) (Object, error) {
	request := &Request{Verb: action.GetVerb(), Resource: action.GetResource().Resource, Subresource: action.GetSubresource(), Name: name}
	before := c.of(request.Resource).present[name]
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		request.Object, _ = action.GetObject().(Object)
	case clienttesting.PatchActionImpl:
		request.Patch, request.PatchType = action.GetPatch(), action.GetPatchType()
	case clienttesting.DeleteActionImpl:
		request.Options = action.GetDeleteOptions()
	}
	after, err := c.Serve(request)
	c.invariants.check(request, before, after, err)
	return after, err
}

// fieldManager is the field manager of the controller's writes.
const fieldManager = "sample-controller"

// imagesOf returns the images of the Pod template.
func imagesOf(deployment *appsv1.Deployment) string {
	var images []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		images = append(images, container.Name+"="+container.Image)
	}
	return strings.Join(images, ",")
}
