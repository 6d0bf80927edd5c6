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

package faults

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
)

const (
	// think is how long a user waits between two operations. It sets how much
	// there is to do, not how fast that must be.
	think = 150 * time.Millisecond
	// answerTime bounds one try of a user's.
	answerTime = 10 * time.Second
	// perseverance bounds all tries of one operation.
	perseverance = 5 * time.Minute
)

// wish is what a user wants of a Foo.
type wish struct {
	deployment string
	replicas   int32
}

// user keeps changing Foos that nobody else changes, and tries each operation
// until it is done: with the same end, however often an answer is lost.
type user struct {
	client      typed.FooInterface
	deployments appstyped.DeploymentInterface
	random      *rand.Rand
	// prefix begins the names of all that this user makes, made counts them.
	prefix string
	made   int
	wishes map[string]wish
	// asked are the specs that this user gave, and since when each was there.
	asked []asked
	done  *atomic.Int64
}

type asked struct {
	spec
	at time.Time
}

// crowd are all users of a namespace.
type crowd struct {
	users []*user
	stop  context.CancelFunc
	work  sync.WaitGroup
	// done counts operations.
	done atomic.Int64

	mu  sync.Mutex
	err error
}

// newCrowd begins the work of that many users, with that many Foos each. It is
// the same work in every run, but how far it goes depends on when it is stopped.
func newCrowd(ctx context.Context, rights access, namespace string, users, foosEach int) *crowd {
	working, stop := context.WithCancel(ctx)
	c := &crowd{stop: stop}
	for i := range users {
		u := &user{
			client:      rights.foos.SamplecontrollerV1alpha1().Foos(namespace),
			deployments: rights.kube.AppsV1().Deployments(namespace),
			random:      rand.New(rand.NewPCG(1, uint64(i))),
			prefix:      fmt.Sprintf("u%d-", i),
			wishes:      map[string]wish{},
			done:        &c.done,
		}
		c.users = append(c.users, u)
		c.work.Go(func() {
			if err := u.work(ctx, working, foosEach); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.err = err
			}
		})
	}
	return c
}

// finish lets the users end the operations that they are at, and returns what they
// want in the end.
func (c *crowd) finish() (map[string]wish, error) {
	c.stop()
	c.work.Wait()
	wishes := map[string]wish{}
	for _, u := range c.users {
		maps.Copy(wishes, u.wishes)
	}
	return wishes, c.failure()
}

// failure returns why one of the users gave up, or nil.
func (c *crowd) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// work creates Foos and then changes them until working ends.
func (u *user) work(ctx, working context.Context, count int) error {
	for range count {
		if err := u.create(ctx, u.name("foo")); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(think)
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
		u.done.Add(1)
	}
}

// operate does something by chance.
func (u *user) operate(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(u.wishes))
	one, other := names[u.random.IntN(len(names))], names[u.random.IntN(len(names))]
	want := u.wishes[one]
	switch chance := u.random.IntN(100); {
	case chance < 40:
		want.replicas = 1 + (want.replicas+1)%3
		return u.change(ctx, one, want)
	case chance < 65:
		want.deployment = u.name("web")
		return u.change(ctx, one, want)
	case chance < 85:
		theirs := u.wishes[other]
		want.deployment, theirs.deployment = theirs.deployment, want.deployment
		if err := u.change(ctx, one, want); err != nil || one == other {
			return err
		}
		return u.change(ctx, other, theirs)
	case chance < 93:
		// Made anew with the name, and the name of its Deployment, that it had.
		if err := u.remove(ctx, one); err != nil {
			return err
		}
		if err := u.awaitGarbageCollector(ctx, one); err != nil {
			return err
		}
		return u.createAs(ctx, one, want)
	}
	if err := u.remove(ctx, one); err != nil {
		return err
	}
	return u.create(ctx, u.name("foo"))
}

// name returns one that nobody has used.
func (u *user) name(kind string) string {
	u.made++
	return fmt.Sprintf("%s%s-%d", u.prefix, kind, u.made)
}

func (u *user) create(ctx context.Context, name string) error {
	return u.createAs(ctx, name, wish{deployment: name, replicas: 1})
}

func (u *user) createAs(ctx context.Context, name string, want wish) error {
	u.wishes[name] = want
	return u.insist(ctx, "creating Foo "+name, func(ctx context.Context) error {
		foo, err := u.client.Create(ctx, &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.FooSpec{DeploymentName: want.deployment, Replicas: ptr.To(want.replicas)},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			// An earlier try was successful: nobody else makes that name.
			return nil
		}
		return u.ask(foo, err)
	})
}

// change insists on the version that was read. So an earlier try cannot take
// effect after a later operation.
func (u *user) change(ctx context.Context, name string, want wish) error {
	u.wishes[name] = want
	return u.insist(ctx, "changing Foo "+name, func(ctx context.Context) error {
		foo, err := u.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if want.is(foo) {
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
		return u.ask(foo, err)
	})
}

// ask takes down that the Foo is as its user wants, if that was no error.
func (u *user) ask(foo *v1alpha1.Foo, err error) error {
	if err == nil {
		u.asked = append(u.asked, asked{spec{foo.UID, foo.Generation}, time.Now()})
	}
	return err
}

func (u *user) remove(ctx context.Context, name string) error {
	delete(u.wishes, name)
	return u.insist(ctx, "deleting Foo "+name, func(ctx context.Context) error {
		err := u.client.Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		// Just after its start an API server knows no Foos at all, and says so with
		// the same code.
		if _, err = u.client.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		if _, err = u.client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			return errors.New("it is there")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// awaitGarbageCollector waits until a Foo that is gone has no Deployment left. The
// garbage collector of Kubernetes 1.37 never collects it where its own watch broke
// and what it finds afterwards is another Foo of that name: an update with another
// UID does not tell it that the former object is gone.
func (u *user) awaitGarbageCollector(ctx context.Context, name string) error {
	return u.insist(ctx, "collecting what Foo "+name+" left", func(ctx context.Context) error {
		list, err := u.deployments.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if ref := controllerOf(&list.Items[i]); ref != nil && ref.Name == name {
				return fmt.Errorf("Deployment %s is there", list.Items[i].Name)
			}
		}
		return nil
	})
}

// is reports whether the Foo is as wished.
func (w wish) is(foo *v1alpha1.Foo) bool {
	return foo.Spec.DeploymentName == w.deployment && ptr.Deref(foo.Spec.Replicas, 1) == w.replicas
}

// insist tries until it is done.
func (u *user) insist(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, perseverance, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w; the last try: %w", what, err, last)
	}
	return nil
}
