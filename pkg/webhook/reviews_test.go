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

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Specs of the Foo x: it asks for the Deployment d, also in v1beta1 and without Pods, and for another one before.
const (
	taking       = `{"deploymentName":"d","replicas":1}`
	takingInBeta = `{"deployment":{"name":"d"},"replicas":1}`
	none         = `{"deploymentName":"d","replicas":0}`
	before       = `{"deploymentName":"before","replicas":1}`
	beforeInBeta = `{"deployment":{"name":"before"},"replicas":1}`
)

func alpha(spec string) string { return newObject("v1alpha1", "x", spec) }
func beta(spec string) string  { return newObject("v1beta1", "x", spec) }

func newObject(version, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"samplecontroller.k8s.io/%s","kind":"Foo",`+
		`"metadata":{"name":%q,"labels":{"l":"<&>"}},"spec":%s}`, version, name, spec)
}

// admissionOf returns the review of the creation of a Foo or, with the spec of an old one, of its update.
func admissionOf(object, old string) string {
	if old = alpha(old); old == alpha("") {
		old = "null"
	}
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"review",`+
		`"namespace":"ns","userInfo":{"username":"jo"},"object":%s,"oldObject":%s}}`, object, old)
}

// conversionOf returns the review of a conversion to a version.
func conversionOf(version string, objects ...string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"review",`+
		`"desiredAPIVersion":"samplecontroller.k8s.io/%s","objects":[%s]}}`, version, strings.Join(objects, ","))
}

// admit sends a review and returns what the answer says: a patch, a refusal and warnings.
func (f *fixture) admit(t *testing.T, path, review string) string {
	t.Helper()
	var got admissionv1.AdmissionReview
	f.ask(t, path, review, &got)
	var says []string
	if response := got.Response; response.Patch != nil {
		var operations []struct {
			Op, Path string
			Value    json.RawMessage
		}
		err := json.Unmarshal(response.Patch, &operations)
		for _, o := range operations {
			says = append(says, fmt.Sprintf("%s %s %s", o.Op, o.Path, o.Value))
		}
		if err != nil || operations == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
			t.Errorf("patch %s: %v", response.Patch, err)
		}
	}
	if result := got.Response.Result; !got.Response.Allowed {
		says = append(says, result.Message)
		if got := fmt.Sprintf("%s %d %s", result.Status, result.Code, result.Reason); got != "Failure 403 Forbidden" {
			t.Errorf("a refusal: %s", got)
		}
	}
	for _, warning := range got.Response.Warnings {
		says = append(says, "warning: "+warning)
	}
	return strings.Join(says, ", ")
}

// newFoo returns a Foo that asks for the Deployment.
func newFoo(name, deployment string, uid types.UID) *v1alpha1.Foo {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}
	return &v1alpha1.Foo{ObjectMeta: meta, Spec: v1alpha1.FooSpec{DeploymentName: deployment}}
}

// newDeployment returns the Deployment d, which asks to be adopted by the Foo of that name.
func newDeployment(adoptBy string, controllers ...metav1.OwnerReference) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: "d", Annotations: map[string]string{v1alpha1.AdoptByAnnotation: adoptBy}, OwnerReferences: controllers,
	}}
}

func newRef(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}
}

func ownedBy(foo string, uid types.UID) *appsv1.Deployment {
	return newDeployment("", newRef("samplecontroller.k8s.io/v1alpha1", "Foo", foo, uid))
}

func deleted[T metav1.Object](object T) T {
	object.SetDeletionTimestamp(ptr.To(metav1.Unix(1, 0)))
	return object
}

// cached returns lookups in caches that have those objects.
func cached(deployment *appsv1.Deployment, foos ...*v1alpha1.Foo) Lookups {
	return Lookups{
		HasSynced: func() bool { return true },
		MayGet:    func(context.Context, authenticationv1.UserInfo, authorizationv1.ResourceAttributes) bool { return true },
		Claimants: func(_, deploymentName string) []*v1alpha1.Foo {
			other := func(foo *v1alpha1.Foo) bool { return foo.Spec.DeploymentName != deploymentName }
			return slices.DeleteFunc(slices.Clone(foos), other)
		},
		Deployment: func(_, name string) *appsv1.Deployment {
			if deployment == nil || deployment.Name != name {
				return nil
			}
			return deployment
		},
	}
}

// TestAdmission: what the two webhooks say about a Foo. An answer names the object that has the Deployment name
// only to a user who may get that object.
func TestAdmission(t *testing.T) {
	const (
		name, betaName, replicas = `add /spec/deploymentName "x"`, `add /spec/deployment/name "x"`, `add /spec/replicas 1`
		parent                   = "add /spec/deployment {}, "
		noPods                   = "warning: spec.replicas is 0: the Deployment will have no Pods"
		field, choose            = "spec.deploymentName (v1beta1: spec.deployment.name): ", "; choose another name"
		held                     = field + `the name "d" is held by `
		ofOwner, ofBar           = held + "Foo owner" + choose, held + "a Deployment of Bar b" + choose
		// A user who wants the Deployment learns how to get it.
		ofNobody = held + "a Deployment that has no controller and does not ask by the annotation " +
			"samplecontroller.k8s.io/adopt-by=x to be adopted" + choose
		moves = "warning: " + held + `Foo owner; until it is free the controller keeps the Deployment "before" and does not create another`
	)
	type foos []*v1alpha1.Foo
	owner, leaving := newFoo("owner", "d", "1"), newFoo("leaving", "elsewhere", "2")
	owned, left, orphan := ownedBy("owner", "1"), ownedBy("leaving", "2"), newDeployment("")
	bar := newDeployment("x", newRef("example.com/v1", "Bar", "b", "1"))
	otherFoo := newDeployment("", newRef("example.com/v1", "Foo", "b", "1"))
	for sentence, c := range map[string]struct {
		deployment *appsv1.Deployment
		foos       foos
		// object is a Foo that asks for the Deployment d, if it is "", and old the spec of the Foo that it replaces.
		object, old string
		says        string
	}{
		"v1alpha1: no spec":            {object: alpha("null"), says: "add /spec {}, " + name + ", " + replicas},
		"v1alpha1: two without a name": {foos: foos{newFoo("owner", "", "1")}, object: alpha("null"), says: "add /spec {}, " + name + ", " + replicas},
		"v1alpha1: an empty spec":      {object: alpha("{}"), says: name + ", " + replicas},
		"v1alpha1: a name":             {object: alpha(`{"deploymentName":"d"}`), says: replicas},
		"v1beta1: no spec":             {object: beta("null"), says: "add /spec {}, " + parent + betaName + ", " + replicas},
		"v1beta1: no deployment":       {object: beta(`{"replicas":2}`), says: parent + betaName},
		"an update keeps the name":     {object: alpha("{}"), old: before, says: `add /spec/deploymentName "before", ` + replicas},
		"an update without a spec":     {object: alpha("{}"), old: "null"},
		"it has no name yet":           {object: newObject("v1alpha1", "", `{"replicas":1}`)},
		"not decided: a string":        {object: beta(`{"deployment":"d"}`)},
		"not decided: not a Foo":       {object: newObject("none", "x", "{}")},
		"not decided: a deletion":      {foos: foos{owner}, object: "null", old: taking},

		"replicas 0":                      {object: alpha(none), says: noPods},
		"replicas become 0":               {object: alpha(none), old: taking, says: noPods},
		"replicas become 0, a taken name": {foos: foos{owner}, object: alpha(none), old: before, says: noPods + ", " + moves},
		"replicas stay 0":                 {object: alpha(none), old: none},
		"an update without another name":  {deployment: orphan, old: taking},
		"an update to a free name":        {old: before},
		"an update to a taken name":       {foos: foos{owner}, object: beta(takingInBeta), old: before, says: moves},
		"the same, and the Foo is leaving": {
			foos: foos{owner}, object: strings.Replace(alpha(taking), `"l`, `"deletionTimestamp":"2020-01-01T00:00:00Z","l`, 1), old: before,
		},

		"the name is free":                  {},
		"a Foo has it":                      {deployment: owned, foos: foos{owner}, says: ofOwner},
		"another waits for its deletion":    {deployment: deleted(ownedBy("leaving", "2")), foos: foos{owner}, says: ofOwner},
		"its Foo is being deleted":          {deployment: owned, foos: foos{deleted(newFoo("owner", "d", "1"))}},
		"its Foo leaves it, a second waits": {deployment: left, foos: foos{owner, leaving}},
		"the Foo that had it is gone":       {deployment: owned},
		"the cache has this Foo already":    {foos: foos{newFoo("x", "d", "3")}},
		"a Deployment without a controller": {deployment: orphan, says: ofNobody},
		"the same, and it is terminating":   {deployment: deleted(newDeployment(""))},
		"a Deployment of another kind":      {deployment: otherFoo, says: strings.Replace(ofBar, "Bar", "Foo", 1)},
		"rule 10: it asks to be adopted":    {deployment: newDeployment("x")},
		"rule 10: it asks another Foo":      {deployment: newDeployment("y"), says: ofNobody},
		"rule 10: one with a controller":    {deployment: bar, says: ofBar},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, mayGet := range []bool{true, false} {
				lookups, asked, right := cached(c.deployment, c.foos...), "", ""
				lookups.MayGet = func(_ context.Context, u authenticationv1.UserInfo, of authorizationv1.ResourceAttributes) bool {
					asked = fmt.Sprintln(u.Username, of.Verb, of.Resource, of.Group, of.Namespace, of.Name)
					return mayGet
				}
				says := c.says
				switch {
				case strings.Contains(says, "Foo owner"):
					right = "jo get foos samplecontroller.k8s.io ns owner\n"
				case strings.Contains(says, held):
					right = "jo get deployments apps ns d\n"
				}
				if !mayGet {
					says = regexp.MustCompile("held by .*?;").ReplaceAllString(says, "held by an object that you may not get;")
				}
				if c.object == "" {
					c.object = alpha(taking)
				}
				review, f := admissionOf(c.object, c.old), newFixture(t, lookups)
				if got := f.admit(t, MutatePath, review) + f.admit(t, ValidatePath, review); got != says {
					t.Errorf("it says %q, want %q", got, says)
				}
				if asked != right {
					t.Errorf("the right to %q was asked for, want %q", asked, right)
				}
			}
		})
	}
}

// TestLimitsOfLookups: nothing is looked up before the caches are filled, nor for a user whose groups would take
// much memory.
func TestLimitsOfLookups(t *testing.T) {
	review, lookups := admissionOf(alpha(taking), ""), cached(nil, newFoo("owner", "d", "1"))
	groups := strings.Replace(review, `"jo"`, `"jo","groups":["`+strings.Repeat("g", maxSmallBody)+`"]`, 1)
	if says := newFixture(t, lookups).admit(t, ValidatePath, groups); !strings.Contains(says, "that you may not get") {
		t.Errorf("a user of many groups: %s", says)
	}
	lookups.HasSynced = func() bool { return false }
	if says := newFixture(t, lookups).admit(t, ValidatePath, review); says != "" {
		t.Errorf("before the caches are filled: %s", says)
	}
}

// TestConversions converts all objects in their order with their metadata, or none. An answer has no escapes, with
// which it could be much larger than its request.
func TestConversions(t *testing.T) {
	f := newFixture(t, cached(nil))
	inAlpha := []string{newObject("v1alpha1", "a", taking), newObject("v1alpha1", "b", before)}
	inBeta := []string{newObject("v1beta1", "a", takingInBeta), newObject("v1beta1", "b", beforeInBeta)}
	const failure = `objects[1]: kind: "Bar" is not Foo`
	for name, c := range map[string]struct {
		to            string
		objects, want []string
		failure       string
	}{
		"no objects":       {to: "v1beta1"},
		"to v1beta1":       {to: "v1beta1", objects: inAlpha, want: inBeta},
		"to v1alpha1":      {to: "v1alpha1", objects: inBeta, want: inAlpha},
		"both versions":    {to: "v1beta1", objects: []string{inAlpha[0], inBeta[1]}, want: inBeta},
		"one is not a Foo": {to: "v1beta1", objects: []string{inAlpha[0], `{"kind":"Bar"}`}, failure: failure},
	} {
		var answer apiextensionsv1.ConversionReview
		f.ask(t, ConvertPath, conversionOf(c.to, c.objects...), &answer)
		var got []string
		for _, object := range answer.Response.ConvertedObjects {
			got = append(got, string(object.Raw))
		}
		result, succeeds := answer.Response.Result, c.failure == ""
		if !slices.Equal(got, c.want) || result.Message != c.failure || (result.Status == metav1.StatusSuccess) != succeeds {
			t.Errorf("%s: %+v and %q, want %q", name, result, got, c.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := convertAll(ended, []byte("[{}]"), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("the API server no longer waits: %v", err)
	}
}

// TestReviewsTakeLittleMemory decodes bodies whose objects would take a multiple of their text.
func TestReviewsTakeLittleMemory(t *testing.T) {
	most := uint64(12)
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		// The race detector allocates too.
		most = 16
	}
	fill := func(format, element string) string {
		return fmt.Sprintf(format, strings.Repeat(element+",", 1<<20/(len(element)+1))+element)
	}
	f, foo := newFixture(t, cached(nil)), alpha("{}")
	for path, body := range map[string]string{
		ConvertPath + "?numbers":        fill(conversionOf("v1beta1", "%s"), "1"),
		MutatePath + "?managed-fields":  admissionOf(strings.Replace(foo, `"labels"`, fill(`"managedFields":[%s],"labels"`, "{}"), 1), ""),
		MutatePath + "?escapes":         strings.Replace(admissionOf(foo, ""), `"name":"x"`, `"name":"`+strings.Repeat("<", 1<<20)+`"`, 1),
		ConvertPath + "?no-utf-8":       strings.Replace(conversionOf("v1beta1", foo), `"review"`, `"`+strings.Repeat("\xff", 1<<20)+`"`, 1),
		MutatePath + "?groups-of-users": strings.Replace(admissionOf(foo, ""), `"jo"`, fill(`"jo","groups":[%s]`, `""`), 1),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f.send(t, path, strings.NewReader(body))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most*uint64(len(body)) {
			t.Errorf("%s: a body of %d bytes takes %d bytes", path, len(body), took)
		}
	}
}

// FuzzHandler checks that no body makes a handler panic or answer with code 500.
func FuzzHandler(f *testing.F) {
	admission := admissionOf(alpha(taking), "")
	for _, seed := range []string{
		"", "null", "{}", "[]", admission, admission[:40], admissionOf(beta("null"), before), strings.Repeat("[", 1000),
		conversionOf("v1beta1", alpha(taking)), conversionOf("none", "null"), conversionOf("v1beta1", "null", "{}", "1"),
		strings.Repeat(`{"request":`, 20_000),
		conversionOf("v1alpha1", beta(`{"deployment":{"name":"x","name":"y"},"replicas":1e400}`), beta(`{"deployment":[],"image":"\ud800"}`)),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		handler := newFixture(t, cached(nil, newFoo("owner", "d", "1")))
		for _, path := range []string{MutatePath, ValidatePath, ConvertPath} {
			code, answer := handler.send(t, path, bytes.NewReader(body))
			if code != http.StatusBadRequest && (code != http.StatusOK || !json.Valid([]byte(answer))) {
				t.Errorf("%s: %d %s", path, code, answer)
			}
		}
	})
}

// TestDeployments: the Deployments of the controller and of the webhooks differ only in what this test removes,
// so that a limit or a security context is not changed in one of them alone.
func TestDeployments(t *testing.T) {
	own := regexp.MustCompile(`(?m)^ *#.*\n|-webhook$|^ *- --?[a-z].*\n|^ *- name: webhook\n.*\n|^ *lifecycle:\n(.*\n){3}|^ *terminationGrace.*\n`)
	var common [2]string
	for i, directory := range []string{"controller", "webhook/server"} {
		text, err := os.ReadFile("../../artifacts/deploy/" + directory + "/deployment.yaml")
		if err != nil {
			t.Fatal(err)
		}
		// The startup probe and the readiness probe ask the same.
		probe := []string{"path: /readyz\n", "path: /readyz?exclude=caches\n"}[i]
		if strings.Count(string(text), probe) != 2 {
			t.Errorf("%s does not have two probes with %s", directory, probe)
		}
		limit := []string{"memory: 256Mi\n", "memory: 512Mi\n"}[i]
		if strings.Count(string(text), limit) != 1 {
			t.Errorf("%s does not have the limit %s", directory, limit)
		}
		common[i] = own.ReplaceAllString(strings.NewReplacer(probe, "PROBE", limit, "LIMIT").Replace(string(text)), "")
	}
	if diff := cmp.Diff(common[0], common[1]); diff != "" {
		t.Errorf("the Deployments of controller (-) and webhook/server (+) differ:\n%s", diff)
	}
}
