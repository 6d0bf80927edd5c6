//go:build faults

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

package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	appstyped "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	typed "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

const (
	// thinkTime is how long a user waits between two operations. It sets the load, not a
	// bound.
	thinkTime = 150 * time.Millisecond
	// attemptTimeout bounds one attempt of a user.
	attemptTimeout = 10 * time.Second
	// operationTimeout bounds all attempts of one operation.
	operationTimeout = 5 * time.Minute
)

// desiredFoo is the spec that a user wants a Foo to have.
type desiredFoo struct {
	deployment string
	replicas   int32
}

// user changes Foos that no other user changes. It retries each operation until it
// succeeds, so that lost answers do not change the final state.
type user struct {
	client      typed.FooInterface
	deployments appstyped.DeploymentInterface
	random      *rand.Rand
	// prefix begins the names that this user makes, and made counts them.
	prefix  string
	made    int
	desired map[string]desiredFoo
	// changes are the specs that this user wrote, and when.
	changes    []specChange
	operations *atomic.Int64
}

type specChange struct {
	fooGeneration
	at time.Time
}

// userGroup is all users of a namespace.
type userGroup struct {
	users []*user
	stop  context.CancelFunc
	wg    sync.WaitGroup
	// operations counts the finished operations of all users.
	operations atomic.Int64

	mu  sync.Mutex
	err error
}

// startUsers starts users with foosEach Foos each. The sequence of operations is the same
// in every run; its length depends on when finish is called.
func startUsers(ctx context.Context, as clientSet, namespace string, users, foosEach int) *userGroup {
	working, stop := context.WithCancel(ctx)
	g := &userGroup{stop: stop}
	for i := range users {
		u := &user{
			client:      as.foos.SamplecontrollerV1alpha1().Foos(namespace),
			deployments: as.kube.AppsV1().Deployments(namespace),
			random:      rand.New(rand.NewPCG(1, uint64(i))),
			prefix:      fmt.Sprintf("u%d-", i),
			desired:     map[string]desiredFoo{},
			operations:  &g.operations,
		}
		g.users = append(g.users, u)
		g.wg.Go(func() {
			if err := u.run(ctx, working, foosEach); err != nil {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.err = err
			}
		})
	}
	return g
}

// finish waits until the users have finished their current operation, and returns the
// specs that they want.
func (g *userGroup) finish() (map[string]desiredFoo, error) {
	g.stop()
	g.wg.Wait()
	desired := map[string]desiredFoo{}
	for _, u := range g.users {
		maps.Copy(desired, u.desired)
	}
	return desired, g.failure()
}

// failure returns the error of a user that gave up, or nil.
func (g *userGroup) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// run creates Foos and changes them until working ends.
func (u *user) run(ctx, working context.Context, count int) error {
	for range count {
		if err := u.create(ctx, u.uniqueName("foo")); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(thinkTime)
	defer ticker.Stop()
	for {
		select {
		case <-working.Done():
			return nil
		case <-ticker.C:
		}
		if err := u.operate(ctx); err != nil {
			return err
		}
		u.operations.Add(1)
	}
}

// operate performs a random operation.
func (u *user) operate(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(u.desired))
	one, other := names[u.random.IntN(len(names))], names[u.random.IntN(len(names))]
	want := u.desired[one]
	switch chance := u.random.IntN(100); {
	case chance < 40:
		want.replicas = 1 + (want.replicas+1)%3
		return u.update(ctx, one, want)
	case chance < 65:
		want.deployment = u.uniqueName("web")
		return u.update(ctx, one, want)
	case chance < 85:
		theirs := u.desired[other]
		want.deployment, theirs.deployment = theirs.deployment, want.deployment
		if err := u.update(ctx, one, want); err != nil || one == other {
			return err
		}
		return u.update(ctx, other, theirs)
	case chance < 93:
		// The new Foo has the same name and the same deploymentName.
		if err := u.delete(ctx, one); err != nil {
			return err
		}
		if err := u.awaitGarbageCollector(ctx, one); err != nil {
			return err
		}
		return u.createWith(ctx, one, want)
	}
	if err := u.delete(ctx, one); err != nil {
		return err
	}
	return u.create(ctx, u.uniqueName("foo"))
}

// uniqueName returns a name that no user has used.
func (u *user) uniqueName(prefix string) string {
	u.made++
	return fmt.Sprintf("%s%s-%d", u.prefix, prefix, u.made)
}

func (u *user) create(ctx context.Context, name string) error {
	return u.createWith(ctx, name, desiredFoo{deployment: name, replicas: 1})
}

func (u *user) createWith(ctx context.Context, name string, want desiredFoo) error {
	u.desired[name] = want
	return u.retry(ctx, "creating Foo "+name, func(ctx context.Context) error {
		foo, err := u.client.Create(ctx, want.object(name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			// An earlier attempt succeeded: no other user creates that name.
			return nil
		}
		return u.recordChange(foo, err)
	})
}

// update writes with the resource version that it read. So an earlier attempt cannot take
// effect after a later operation.
func (u *user) update(ctx context.Context, name string, want desiredFoo) error {
	u.desired[name] = want
	return u.retry(ctx, "changing Foo "+name, func(ctx context.Context) error {
		foo, err := u.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if want.matches(foo) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": foo.ResourceVersion},
			"spec":     map[string]any{"deploymentName": want.deployment, "replicas": want.replicas},
		})
		if err != nil {
			return err
		}
		foo, err = u.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return u.recordChange(foo, err)
	})
}

// recordChange records the generation that now has the desired spec.
func (u *user) recordChange(foo *v1alpha1.Foo, err error) error {
	if err == nil {
		u.changes = append(u.changes, specChange{fooGeneration{foo.UID, foo.Generation}, time.Now()})
	}
	return err
}

func (u *user) delete(ctx context.Context, name string) error {
	delete(u.desired, name)
	return u.retry(ctx, "deleting Foo "+name, func(ctx context.Context) error {
		err := u.client.Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		// An API server that has just started does not serve Foos yet, and answers 404 as
		// well.
		if _, err = u.client.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		if _, err = u.client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			return errors.New("it exists")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// awaitGarbageCollector waits until the Deployments of a deleted Foo are gone. The
// garbage collector of Kubernetes 1.37 never deletes them if its watch breaks and it then
// lists a new Foo of the same name: an update event with another UID does not tell it
// that the old object is gone.
func (u *user) awaitGarbageCollector(ctx context.Context, name string) error {
	return u.retry(ctx, "waiting for the garbage collector to delete the Deployments of Foo "+name, func(ctx context.Context) error {
		list, err := u.deployments.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if ref := sim.Owner(&list.Items[i]); ref != nil && ref.Name == name {
				return fmt.Errorf("Deployment %s exists", list.Items[i].Name)
			}
		}
		return nil
	})
}

// object returns a Foo with that spec, to be created.
func (d desiredFoo) object(name string) *v1alpha1.Foo {
	return &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: d.deployment, Replicas: ptr.To(d.replicas)},
	}
}

// markerFoo returns a Foo whose Deployment has no Pods.
func markerFoo(name string) *v1alpha1.Foo {
	return desiredFoo{deployment: name}.object(name)
}

func (d desiredFoo) matches(foo *v1alpha1.Foo) bool {
	return foo.Spec.DeploymentName == d.deployment && ptr.Deref(foo.Spec.Replicas, 1) == d.replicas
}

// retry calls try until it succeeds.
func (u *user) retry(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, operationTimeout, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w; last: %w", what, err, last)
	}
	return nil
}
