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
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// definition names an expression, which others can use after it.
type definition struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// rule is what must be true of each write of the controller for which when is true, by default of each.
type rule struct {
	Name string `json:"name"`
	When string `json:"when,omitempty"`
	Must string `json:"must"`
}

// variables returns what an expression can name: the objects that existed after these versions, and the versions
// themselves. All but now and quiet are objects, or null, or lists of objects.
func variables(versions []version) map[string]any {
	v := map[string]any{"object": nil, "was": nil, "request": nil, "before": nil, "after": nil, "owner": nil, "now": nil, "quiet": nil}
	objects, all := []any{}, []any{}
	last := latest(versions)
	for i := range versions {
		all = append(all, versions[i].object.Object)
		if is := last[versions[i].object.GetUID()]; !is.deleted && is.object == versions[i].object {
			objects = append(objects, is.object.Object)
		}
	}
	v["objects"], v["versions"] = objects, all
	return v
}

// expressions are compiled expressions in CEL by their text.
type expressions struct {
	env      *cel.Env
	defined  []definition
	programs map[string]cel.Program
}

func newExpressions() (*expressions, error) {
	options := []cel.EnvOption{cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Bindings(), cel.Function("controls",
		cel.MemberOverload("owner_controls_object", []*cel.Type{cel.DynType, cel.DynType}, cel.BoolType, cel.BinaryBinding(controls)))}
	for name := range variables(nil) {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	e := &expressions{env: env, programs: map[string]cel.Program{}}
	for _, d := range []definition{
		{"owned", "was.controls(object)"},
		{"gone", "object == null"},
		{"rest", "quiet > duration('3s')"},
		// What nobody owns, and what the generated scenarios keep from going.
		{"foreign", "!has(object.metadata.ownerReferences) && !object.metadata.name.startsWith('" + bystanderPrefix + "')"},
		{"finalized", "object.metadata.?finalizers.orValue([]).exists(f, f == 'example.com/hold')"},
	} {
		err = errors.Join(err, e.define(d))
	}
	return e, err
}

// controls reports whether the first object is the controller of the second one. No object controls null.
func controls(owner, object ref.Val) ref.Val {
	o, isOwner := owner.Value().(map[string]any)
	d, isObject := object.Value().(map[string]any)
	if !isOwner || !isObject {
		return types.False
	}
	by := metav1.GetControllerOf(&unstructured.Unstructured{Object: d})
	return types.Bool(by != nil && by.UID == (&unstructured.Unstructured{Object: o}).GetUID())
}

// define makes later expressions know the name.
func (e *expressions) define(d definition) error {
	err := e.compile(d.Expression)
	if err == nil {
		e.defined = append(e.defined, d)
		if e.env, err = e.env.Extend(cel.Variable(d.Name, cel.DynType)); err == nil {
			err = e.compile(d.Name)
		}
	}
	return err
}

// compile makes the expression one that evaluate knows. "" is none.
func (e *expressions) compile(text string) error {
	if text == "" {
		return nil
	}
	ast, issues := e.env.Compile(text)
	if issues.Err() != nil {
		return fmt.Errorf("%q: %w", text, issues.Err())
	}
	program, err := e.env.Program(ast)
	e.programs[text] = program
	return err
}

// evaluate returns the value of an expression. What is defined has one only if it is used.
func (e *expressions) evaluate(text string, with map[string]any) (any, error) {
	values := maps.Clone(with)
	for _, d := range e.defined {
		values[d.Name] = func() ref.Val {
			value, _, err := e.programs[d.Expression].Eval(values)
			if err != nil {
				return types.NewErr("%s: %v", d.Name, err)
			}
			return value
		}
	}
	value, _, err := e.programs[text].Eval(values)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.TrimSpace(text), err)
	}
	return value.Value(), nil
}

// isTrue reports whether the expression is.
func (e *expressions) isTrue(text string, with map[string]any) (bool, error) {
	value, err := e.evaluate(text, with)
	is, isBool := value.(bool)
	if err == nil && !isBool {
		err = fmt.Errorf("%s: it is %v, neither true nor false", text, value)
	}
	return is, err
}

// holds reports whether the rule is kept.
func (e *expressions) holds(r rule, with map[string]any) (bool, error) {
	if r.When != "" {
		if concerns, err := e.isTrue(r.When, with); !concerns || err != nil {
			return err == nil, err
		}
	}
	return e.isTrue(r.Must, with)
}

var placeholder = regexp.MustCompile(`\$\{[^}]+\}`)

// compileIn compiles the expressions in ${ and }.
func (e *expressions) compileIn(text string) error {
	for _, found := range placeholder.FindAllString(text, -1) {
		if err := e.compile(found[2 : len(found)-1]); err != nil {
			return err
		}
	}
	return nil
}

// expand replaces ${EXPRESSION} in a text by its value.
func (e *expressions) expand(text []byte, with map[string]any) ([]byte, error) {
	var failed error
	return placeholder.ReplaceAllFunc(text, func(found []byte) []byte {
		value, err := e.evaluate(string(found[2:len(found)-1]), with)
		if err != nil {
			failed = err
		}
		return fmt.Append(nil, value)
	}), failed
}

// judgeRules evaluates the rules of the suite for each write that changed or deleted something, and calls found for
// the first one that breaks a rule.
func (c *checker) judgeRules(o *outcome, found func(judge, format string, arguments ...any)) {
	versions := slices.Clone(o.versions)
	slices.SortStableFunc(versions, byRevision)
	broken := map[string]bool{}
	for i := range o.requests {
		r := &o.requests[i]
		at := slices.IndexFunc(versions, r.causes)
		if !r.applied() || at < 0 {
			continue
		}
		with := c.moment(versions, at, r)
		for _, rule := range c.suite.Rules {
			ok, err := c.suite.holds(rule, with)
			if !ok && !broken[rule.Name] {
				broken[rule.Name] = true
				found("rule", "%s: %s %v\nbefore: %s\nafter: %s", rule.Name, r.class(newAliases(o.namespace, nil).of), orEmpty(err),
					brief(with["before"]), brief(with["after"]))
			}
		}
	}
}

// causes reports whether the request led to that version.
func (r *request) causes(v version) bool {
	if r.deletes != "" {
		return string(v.object.GetUID()) == r.deletes && !v.isLive()
	}
	return v.resource == r.Resource && v.object.GetName() == r.made && v.object.GetResourceVersion() == r.revision && !v.deleted
}

// moment returns the variables of the write that led to the version at that index.
func (c *checker) moment(versions []version, at int, r *request) map[string]any {
	with, is := variables(versions[:at]), versions[at]
	with["request"] = map[string]any{
		"verb": r.verb, "resource": r.Resource, "subresource": r.subresource, "name": r.name, "conditional": r.conditional,
		"fields": strings.FieldsFunc(r.fields, func(c rune) bool { return c == ',' }),
	}
	if !is.deleted {
		with["after"] = is.object.Object
	}
	last, by := latest(versions[:at]), metav1.GetControllerOf(is.object)
	if was, ok := last[is.object.GetUID()]; ok {
		with["before"] = was.object.Object
		by = cmp.Or(metav1.GetControllerOf(was.object), by)
	}
	for uid, v := range last {
		if v.resource == c.owners.Resource && !v.deleted && (uid == is.object.GetUID() || by != nil && by.UID == uid) {
			with["owner"] = v.object.Object
		}
	}
	return with
}

func orEmpty(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// brief returns an object without managed fields as JSON.
func brief(object any) string {
	fields, ok := object.(map[string]any)
	if !ok {
		return "null"
	}
	u := (&unstructured.Unstructured{Object: fields}).DeepCopy()
	u.SetManagedFields(nil)
	return string(mustEncode(u))
}

// timestamp is a time as expressions know it.
func timestamp(t time.Time) types.Timestamp { return types.Timestamp{Time: t} }
