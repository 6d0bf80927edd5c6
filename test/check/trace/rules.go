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

package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"
)

// Version is one version of an object. Revisions order the versions of all objects of a cluster.
type Version struct {
	Resource string
	Object   *unstructured.Unstructured
	Revision int64
	Deleted  bool
	// At is when it was seen.
	At time.Time
}

// IsLive reports whether the object exists and has no deletion timestamp.
func (v *Version) IsLive() bool { return !v.Deleted && v.Object.GetDeletionTimestamp() == nil }

// ByRevision orders versions of several resources.
func ByRevision(a, b Version) int { return cmp.Compare(a.Revision, b.Revision) }

// Latest returns the last version of each object, deleted ones included.
func Latest(versions []Version) map[apitypes.UID]Version {
	last := map[apitypes.UID]Version{}
	for _, v := range versions {
		last[v.Object.GetUID()] = v
	}
	return last
}

// History has every version of every recorded object in a namespace. Those of one resource are in order.
type History struct {
	mu         sync.Mutex
	versions   []Version
	lastChange time.Time
}

// NewHistory begins a history.
func NewHistory() *History { return &History{lastChange: Now()} }

// Add adds a version.
func (h *History) Add(resource string, object *unstructured.Unstructured, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastChange = Now()
	// Etcd's revisions are numbers.
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	h.versions = append(h.versions, Version{resource, object, revision, deleted, h.lastChange})
}

// All returns the versions so far, and when the last one came.
func (h *History) All() ([]Version, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.versions), h.lastChange
}

// Await waits until the history has the version of the object or its deletion. Until then the former state would look
// like the final one.
func (h *History) Await(ctx context.Context, most time.Duration, object *unstructured.Unstructured, deletion bool) error {
	return Poll(ctx, most, func(context.Context) error {
		versions, _ := h.All()
		for _, v := range versions {
			is := !deletion && v.Object.GetResourceVersion() == object.GetResourceVersion() || deletion && !v.IsLive()
			if is && v.Object.GetUID() == object.GetUID() {
				return nil
			}
		}
		return errors.New("the change is not seen")
	})
}

// BystanderPrefix begins the names of objects that look like dependents of an owner and are none.
const BystanderPrefix = "bystander-"

// Definition names an expression, which others can use after it.
type Definition struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// Rule is what must be true of each write of the controller for which when is true, by default of each.
type Rule struct {
	Name string `json:"name"`
	When string `json:"when,omitempty"`
	Must string `json:"must"`
}

// RuleSet are the rules of a suite, which are expressions in CEL.
type RuleSet struct {
	// Define has expressions that the rules and the scenarios use.
	Define []Definition `json:"define,omitempty"`
	Rules  []Rule       `json:"rules,omitempty"`
	// Ends are what must be true at rest: there object is the example.
	Ends []Rule `json:"ends,omitempty"`

	env      *cel.Env
	defined  []Definition
	programs map[string]cel.Program
}

// Variables returns what an expression can name: the objects that existed after these versions, and the versions
// themselves. All but now and quiet are objects, or null, or lists of objects.
func Variables(versions []Version) map[string]any {
	v, last, objects, all := map[string]any{}, Latest(versions), []any{}, []any{}
	for _, name := range strings.Fields("object was request before after owner now quiet") {
		v[name] = nil
	}
	for _, version := range versions {
		all = append(all, version.Object.Object)
		if last[version.Object.GetUID()] == version && !version.Deleted {
			objects = append(objects, version.Object.Object)
		}
	}
	v["objects"], v["versions"] = objects, all
	return v
}

// Prepare compiles the rules. Before that no expression can be compiled.
func (s *RuleSet) Prepare() error {
	objects := []*cel.Type{cel.DynType, cel.DynType}
	options := []cel.EnvOption{cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Bindings(), cel.Function("controls",
		cel.MemberOverload("owner_controls_object", objects, cel.BoolType, cel.BinaryBinding(controls)))}
	for name := range Variables(nil) {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return err
	}
	s.env, s.programs = env, map[string]cel.Program{}
	for _, d := range append([]Definition{
		{"owned", "was.controls(object)"},
		{"gone", "object == null"},
		{"rest", "quiet > duration('3s')"},
		// What nobody owns, and what the generated scenarios keep from going.
		{"foreign", "!has(object.metadata.ownerReferences) && !object.metadata.name.startsWith('" + BystanderPrefix + "')"},
		{"stranger", "objects.filter(o, o.metadata.name == '" + BystanderPrefix + "owner')[0].metadata.uid"},
		{"finalized", "object.metadata.?finalizers.orValue([]).exists(f, f == 'example.com/hold')"},
	}, s.Define...) {
		if err := s.Compile(d.Expression); err != nil {
			return err
		}
		s.defined = append(s.defined, d)
	}
	for _, r := range slices.Concat(s.Rules, s.Ends) {
		if err := errors.Join(s.Compile(r.When), s.Compile(r.Must)); err != nil {
			return fmt.Errorf("rule %q: %w", r.Name, err)
		}
	}
	return nil
}

// controls reports whether the first object is the controller of the second one. No object controls null.
func controls(owner, object ref.Val) ref.Val {
	o, isOwner := owner.Value().(map[string]any)
	d, isObject := object.Value().(map[string]any)
	return types.Bool(isOwner && isObject &&
		metav1.IsControlledBy(&unstructured.Unstructured{Object: d}, &unstructured.Unstructured{Object: o}))
}

// Compile makes the expression one that can be evaluated. "" is none. What is defined has a value only if it is used.
func (s *RuleSet) Compile(text string) error {
	if text == "" {
		return nil
	}
	whole := text
	for _, d := range slices.Backward(s.defined) {
		whole = fmt.Sprintf("cel.bind(%s, %s, %s)", d.Name, d.Expression, whole)
	}
	ast, issues := s.env.Compile(whole)
	if issues.Err() != nil {
		return fmt.Errorf("%q: %w", text, issues.Err())
	}
	var err error
	s.programs[text], err = s.env.Program(ast)
	return err
}

func (s *RuleSet) evaluate(text string, with map[string]any) (any, error) {
	value, _, err := s.programs[text].Eval(with)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.TrimSpace(text), err)
	}
	return value.Value(), nil
}

// IsTrue reports whether the expression is.
func (s *RuleSet) IsTrue(text string, with map[string]any) (bool, error) {
	value, err := s.evaluate(text, with)
	is, isBool := value.(bool)
	if err == nil && !isBool {
		err = fmt.Errorf("%s: it is %v, neither true nor false", text, value)
	}
	return is, err
}

// Holds returns an error if the rule is not kept.
func (s *RuleSet) Holds(r Rule, with map[string]any) error {
	if r.When != "" {
		if concerns, err := s.IsTrue(r.When, with); !concerns || err != nil {
			return err
		}
	}
	is, err := s.IsTrue(r.Must, with)
	if err == nil && !is {
		return errors.New("it is broken")
	}
	return err
}

var placeholder = regexp.MustCompile(`\$\{([^}]+)\}`)

// CompileIn compiles the expressions in ${ and }.
func (s *RuleSet) CompileIn(text string) (err error) {
	for _, found := range placeholder.FindAllStringSubmatch(text, -1) {
		err = errors.Join(err, s.Compile(found[1]))
	}
	return err
}

// Expand replaces ${EXPRESSION} in a text by its value.
func (s *RuleSet) Expand(text []byte, with map[string]any) ([]byte, error) {
	var failed error
	return placeholder.ReplaceAllFunc(text, func(found []byte) []byte {
		value, err := s.evaluate(string(found[2:len(found)-1]), with)
		failed = errors.Join(failed, err)
		return fmt.Append(nil, value)
	}), failed
}

// Judge evaluates the rules for each write of a controller that changed or deleted something, and calls found for each
// that breaks one. owners is the resource of what the controller reconciles. If since is not nil, a rule is kept too if
// it was at an earlier moment since then: a controller cannot foresee what others do between a read and a write.
func (s *RuleSet) Judge(versions []Version, requests []Request, owners string,
	since func(*Request) time.Time, found func(rule, message string, r *Request)) {
	versions = slices.SortedStableFunc(slices.Values(versions), ByRevision)
	for i := range requests {
		r := &requests[i]
		at := r.effect(versions)
		if at < 0 {
			continue
		}
		with := moment(versions, at, at, r, owners)
		for _, rule := range s.Rules {
			err := s.Holds(rule, with)
			for then := at; err != nil && since != nil && then > 0 && versions[then-1].At.After(since(r)); then-- {
				err = s.Holds(rule, moment(versions, at, then-1, r, owners))
			}
			if err != nil {
				found(rule.Name, fmt.Sprintf("%v\nbefore: %s\nafter: %s", err, Brief(with["before"]), Brief(with["after"])), r)
			}
		}
	}
}

// effect returns the index of the version that the request led to, -1 for none. Without an answer, that is what
// followed the version that the request demanded, if it is of that kind.
func (r *Request) effect(versions []Version) int {
	last := map[apitypes.UID]*Version{}
	for i := range versions {
		v := &versions[i]
		if v.Resource != r.Resource || v.Object.GetName() != r.Name && v.Object.GetName() != r.Made {
			continue
		}
		uid, is := v.Object.GetUID(), false
		switch was := last[uid]; {
		case r.Deletes != "":
			is = string(uid) == r.Deletes && !v.IsLive()
		case r.Applied():
			is = v.Object.GetResourceVersion() == r.Revision && !v.Deleted
		case r.IsLost() && was == nil:
			is = r.Verb == http.MethodPost && !v.At.Before(r.At)
		case r.IsLost():
			is = was.Object.GetResourceVersion() == r.Precondition && r.wouldMake(v, was)
		}
		if is {
			return i
		}
		last[uid] = v
	}
	return -1
}

// wouldMake reports whether the request would change an object so.
func (r *Request) wouldMake(v, was *Version) bool {
	if r.Verb == http.MethodDelete || !v.IsLive() {
		return r.Verb == http.MethodDelete && !v.IsLive() && was.IsLive()
	}
	now, old := v.Object, was.Object
	isSame := now.GetGeneration() == old.GetGeneration() && maps.Equal(now.GetLabels(), old.GetLabels()) &&
		reflect.DeepEqual(now.GetOwnerReferences(), old.GetOwnerReferences())
	return isSame == (r.Subresource != "")
}

// moment returns the variables of the write that led to the version at that index, as of the versions before then.
func moment(versions []Version, at, then int, r *Request, owners string) map[string]any {
	with, is := Variables(versions[:then]), versions[at]
	with["request"] = map[string]any{
		"verb": r.Verb, "resource": r.Resource, "subresource": r.Subresource, "name": r.Name,
		"conditional": r.Precondition != "", "fields": strings.FieldsFunc(r.Fields, func(c rune) bool { return c == ',' }),
	}
	if !is.Deleted {
		with["after"] = is.Object.Object
	}
	by := metav1.GetControllerOf(is.Object)
	was, ok := Latest(versions[:at])[is.Object.GetUID()]
	if r.Applied() && r.Revision == r.Precondition {
		was, ok = is, true // It changed nothing.
	}
	if ok {
		with["before"] = was.Object.Object
		by = cmp.Or(metav1.GetControllerOf(was.Object), by)
	}
	for uid, v := range Latest(versions[:then]) {
		if v.Resource == owners && !v.Deleted && (uid == is.Object.GetUID() || by != nil && by.UID == uid) {
			with["owner"] = v.Object.Object
		}
	}
	return with
}

// Brief returns an object without managed fields as JSON.
func Brief(object any) string {
	fields, ok := object.(map[string]any)
	if !ok {
		return "null"
	}
	u := (&unstructured.Unstructured{Object: fields}).DeepCopy()
	u.SetManagedFields(nil)
	return string(MustEncode(u))
}

// Process is one process of the controller, with its children.
type Process struct {
	*exec.Cmd

	// Done is closed when it has exited, and ExitedAt is when that was.
	Done     chan struct{}
	ExitedAt time.Time
	log      string
}

// StartRecorded starts a program whose output is in logs/NAME.log below the directory. As long as it runs its PID is in
// pids/NAME: if this process is killed, hack/lib.sh ends it.
func StartRecorded(dir, name string, variables []string, program string, arguments ...string) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, "logs", name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	record := filepath.Join(dir, "pids", name)
	// The shell writes its PID before it becomes the program.
	shell := []string{"-c", `echo $$ >"$0" && exec "$@"`, record, program}
	command := exec.Command("bash", append(shell, arguments...)...)
	command.Env, command.Stdout, command.Stderr = variables, log, log
	p, err := Start(command, func() { _ = os.Remove(record) })
	if err == nil {
		p.log = log.Name()
	}
	return p, err
}

// Output returns what a recorded process has printed so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Start starts a command in a process group of its own, and calls ended when it has exited. Its variables are beside those
// of this process that could not connect it to an API server past its proxy.
func Start(command *exec.Cmd, ended func()) (*Process, error) {
	p := &Process{Cmd: command, Done: make(chan struct{})}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ofCluster := func(entry string) bool { return strings.HasPrefix(entry, "KUBE") }
	p.Env = append(slices.DeleteFunc(os.Environ(), ofCluster), p.Env...)
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		// The state of the process says how it ended.
		_ = p.Wait()
		p.ExitedAt = Now()
		ended()
		close(p.Done)
	}()
	return p, nil
}

// Kill kills the process and its children, and returns once it has exited.
func (p *Process) Kill() {
	// It may have exited.
	_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	<-p.Done
}
