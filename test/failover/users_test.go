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
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	typed "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/check/trace"
)

const (
	countOfUsers = 8
	// thinkTime is how long a user waits between two operations. It sets the load, not a bound.
	thinkTime = 150 * time.Millisecond
	// attemptTimeout bounds one attempt of a user, and operationTimeout all attempts of one operation.
	attemptTimeout   = 10 * time.Second
	operationTimeout = 5 * time.Minute
)

// desiredFoo is the spec that a user wants a Foo to have.
type desiredFoo struct {
	deployment string
	replicas   int32
}

func (d desiredFoo) matches(foo *v1alpha1.Foo) bool {
	return foo.Spec.DeploymentName == d.deployment && ptr.Deref(foo.Spec.Replicas, 1) == d.replicas
}

// user changes Foos that no other user changes. It retries each operation until it succeeds, so that lost answers do
// not change the final state.
type user struct {
	client typed.FooInterface
	random *rand.Rand
	// prefix begins the names that this user makes, and made counts them.
	prefix  string
	made    int
	desired map[string]desiredFoo
}

type userGroup struct {
	users []*user
	stop  context.CancelFunc
	errgroup.Group

	// operations counts the finished operations of all users.
	operations atomic.Int64
}

// startUsers starts users with foosEach Foos each. The sequence of operations is the same in every run; its length
// depends on when finish is called.
func startUsers(ctx context.Context, client typed.FooInterface, foosEach int) *userGroup {
	working, stop := context.WithCancel(ctx)
	g := &userGroup{stop: stop}
	for i := range countOfUsers {
		u := &user{client: client, random: rand.New(rand.NewPCG(1, uint64(i))), prefix: fmt.Sprintf("u%d-", i), desired: map[string]desiredFoo{}}
		g.users = append(g.users, u)
		g.Go(func() error { return u.run(ctx, working, foosEach, &g.operations) })
	}
	return g
}

// finish waits until the users have finished their current operation, and returns the specs that they want.
func (g *userGroup) finish() (map[string]desiredFoo, error) {
	g.stop()
	err := g.Wait()
	desired := map[string]desiredFoo{}
	for _, u := range g.users {
		maps.Copy(desired, u.desired)
	}
	return desired, err
}

func (u *user) run(ctx, working context.Context, count int, operations *atomic.Int64) error {
	for range count {
		if err := u.create(ctx); err != nil {
			return err
		}
	}
	for trace.Pause(working, thinkTime); working.Err() == nil; trace.Pause(working, thinkTime) {
		if err := u.operate(ctx); err != nil {
			return err
		}
		operations.Add(1)
	}
	return nil
}

func (u *user) operate(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(u.desired))
	one, other := names[u.random.IntN(len(names))], names[u.random.IntN(len(names))]
	want, theirs := u.desired[one], u.desired[other]
	switch chance := u.random.IntN(100); {
	case chance < 40:
		want.replicas = 1 + (want.replicas+1)%3
		return u.write(ctx, one, want)
	case chance < 65:
		want.deployment = u.uniqueName("web")
		return u.write(ctx, one, want)
	case chance < 90:
		want.deployment, theirs.deployment = theirs.deployment, want.deployment
		if err := u.write(ctx, one, want); err != nil || one == other {
			return err
		}
		return u.write(ctx, other, theirs)
	}
	if err := u.delete(ctx, one); err != nil {
		return err
	}
	return u.create(ctx)
}

func (u *user) uniqueName(prefix string) string {
	u.made++
	return fmt.Sprintf("%s%s-%d", u.prefix, prefix, u.made)
}

// create creates a Foo with a name of its own.
func (u *user) create(ctx context.Context) error {
	name := u.uniqueName("foo")
	return u.write(ctx, name, desiredFoo{deployment: name, replicas: 1})
}

// write gives the Foo that spec, and creates it if the user has none of that name. An update has the resource version
// that was read, so that an earlier attempt cannot take effect after a later operation.
func (u *user) write(ctx context.Context, name string, want desiredFoo) error {
	_, exists := u.desired[name]
	u.desired[name] = want
	return u.retry(ctx, "writing Foo "+name, func(ctx context.Context) error {
		foo, err := u.client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && !want.matches(foo):
			foo.Spec.DeploymentName, foo.Spec.Replicas = want.deployment, ptr.To(want.replicas)
			_, err = u.client.Update(ctx, foo, metav1.UpdateOptions{})
		case apierrors.IsNotFound(err) && !exists:
			_, err = u.client.Create(ctx, &v1alpha1.Foo{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       v1alpha1.FooSpec{DeploymentName: want.deployment, Replicas: ptr.To(want.replicas)},
			}, metav1.CreateOptions{})
		}
		return err
	})
}

func (u *user) delete(ctx context.Context, name string) error {
	delete(u.desired, name)
	return u.retry(ctx, "deleting Foo "+name, func(ctx context.Context) error {
		err := u.client.Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		// An API server that has just started does not serve Foos yet, and answers 404 as well.
		list, err := u.client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("it exists")
		}
		return err
	})
}

func (u *user) retry(ctx context.Context, what string, try func(context.Context) error) error {
	err := trace.Poll(ctx, operationTimeout, func(ctx context.Context) error { return attempt(ctx, try) })
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

func attempt(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return try(ctx)
}
