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
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/explore"
	"example.com/sample-controller/test/sim"
)

// withRenames adds renames to those starts in which Foo x has Deployment a, and starts that are about renames.
func withRenames(starts []explore.Start) []explore.Start {
	const x, y, a, b = "x", "y", "a", "b"
	then := explore.FooOperations
	createX, createY := sim.Op{Verb: sim.CreateFoo, Foo: x, Deployment: a, Replicas: 1}, sim.Op{Verb: sim.CreateFoo, Foo: y, Deployment: b, Replicas: 1}
	renameX, renameY := sim.Op{Verb: sim.Rename, Foo: x, Deployment: b}, sim.Op{Verb: sim.Rename, Foo: y, Deployment: a}
	renameBack, renameAgain := sim.Op{Verb: sim.Rename, Foo: x, Deployment: a}, sim.Op{Verb: sim.Rename, Foo: x, Deployment: "c"}
	renameYAway, deleteY := sim.Op{Verb: sim.Rename, Foo: y, Deployment: "c"}, sim.Op{Verb: sim.DeleteFoo, Foo: y, Propagation: background}
	scaleX, editImageB := sim.Op{Verb: sim.ScaleFoo, Foo: x, Replicas: 2}, sim.Op{Verb: sim.EditDeployment, Deployment: b, Edit: sim.EditImage}
	imageX, stallX := sim.Op{Verb: sim.SetImage, Foo: x, NewImage: "nginx:2"}, sim.Op{Verb: sim.SetImage, Foo: x, NewImage: sim.StalledImage}
	deleteX, deleteA := sim.Op{Verb: sim.DeleteFoo, Foo: x, Propagation: background}, sim.Op{Verb: sim.DeleteDeployment, Deployment: a, Propagation: background}
	editA := sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditReplicas, Replicas: 3}
	editB := sim.Op{Verb: sim.EditDeployment, Deployment: b, Edit: sim.EditReplicas, Replicas: 0}
	recreateA := sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditRecreate}
	copyA := sim.Op{Verb: sim.CopyDeployment, Deployment: a, Other: "c"}
	withImage := explore.Operation{Story: "kubectl edit foo x: another name and another image", Do: func(store *sim.Store) {
		store.Change(sim.Foos, x, func(foo sim.Object) {
			spec := &foo.(*v1alpha1.Foo).Spec
			spec.DeploymentName, spec.Image = b, "nginx:2"
		})
	}}
	refused := func(op sim.Op) explore.Operation {
		return explore.Operation{Story: "a policy refuses the writes to Deployments, and " + op.String(), Do: func(store *sim.Store) {
			store.Refused = sim.Deployments
			store.Do(op)
		}}
	}
	for i := range starts {
		switch start := &starts[i]; start.Name {
		case "x has a":
			start.Then = append(start.Then, withImage, refused(renameX))
			fallthrough
		case "x has a, y waits for it", "x has a with an image":
			start.Then = append(start.Then, then(renameX)...)
		}
	}
	return append(starts,
		explore.Start{
			Name: "x moves to b, which stalls", Operations: then(createX, stallX, renameX), Part: "1+0", All: "1+1 2+0",
			Then: append(then(imageX, renameBack, renameAgain, deleteX, deleteA, editA, editB), refused(editImageB)),
		},
		explore.Start{Name: "x has a, y has b", Operations: then(createX, createY), Then: then(renameX, renameY, deleteX), Part: "1+1", All: "1+1 2+0"},
		explore.Start{
			Name: "x has a, y has b and waits for a", Operations: then(createX, createY, renameY), Part: "1+0", All: "1+1", Then: then(renameX),
		},
		explore.Start{
			Name: "x has a, which others have changed", Operations: then(createX, sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditOtherFields}),
			Then: then(renameX), Part: "1+0", All: "1+1",
		},
		explore.Start{Name: "x has a, and moves", Operations: then(createX), Then: then(renameX, renameBack), All: "2+0"},
		explore.Start{
			Name: "x is refused b", Operations: append(then(createX), refused(renameX)), Part: "1+0",
			Then: []explore.Operation{{Story: "the policy ends, and Foo x asks for c", Do: func(store *sim.Store) {
				store.Refused = ""
				store.Do(renameAgain)
			}}},
		},
		explore.Start{
			Name: "y has b, x has a and waits for b", Operations: then(createX, createY, renameX), All: "1+0",
			Then: append(then(renameY, renameYAway), explore.Operation{Story: "Foo y is deleted, and Foo x scaled", Do: func(store *sim.Store) {
				store.Do(deleteY)
				store.Do(scaleX)
			}}),
		},
		explore.Start{
			Name: "x has a with strategy Recreate, and a copy of it", Operations: then(createX, recreateA, copyA),
			Then: then(renameX, editB, deleteA), Part: "1+0", All: "1+1 2+0",
		},
	)
}
