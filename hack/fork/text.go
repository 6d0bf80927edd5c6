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
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"example.com/sample-controller/hack/naming"
	"example.com/sample-controller/hack/tree"
)

// original returns the names of this repository.
func original() naming.Names {
	return naming.Names{
		Module: "example.com/sample-controller", Program: "sample-controller", Group: "samplecontroller.k8s.io", GroupPackage: "samplecontroller",
		Version: "v1alpha1", NextVersion: "v1beta1", Kind: "Foo", Kinds: "Foos", Plural: "foos",
	}
}

// fork is the part that every fork is without: this command, and what is true of this repository only.
const fork = "fork"

// serviceFile stays where a made kind has an external service, which its tests call that.
const serviceFile, service = "test/kinds/service.go", "kinds.Service"

// part is a part of the repository that a fork can be without.
type part struct {
	// name is the name in DROP and a word in the paths of its files, or the name in WITH if a fork is without
	// the part by default: then only the paths below belong to it. They are the beginnings of paths.
	name   string
	isMore bool
	paths  []string
	// kind is the kind of a sibling. mention matches what names the part in the text of a file. needs are parts
	// without which this one cannot be.
	kind    string
	mention *regexp.Regexp
	needs   []string
}

func parts() []part {
	return []part{
		{name: "memcached", paths: []string{"pkg/apis/cache"}, kind: "Memcached", mention: regexp.MustCompile(`(?i)memcached|cache\.example\.com`)},
		{name: "crontab", paths: []string{"pkg/apis/alpha", "artifacts/examples/backup.yaml"}, kind: "CronTab", mention: regexp.MustCompile(`(?i)crontab|alpha\.ianlewis`)},
		{name: "webhooks", paths: []string{"pkg/apis/samplecontroller/v1beta1", "pkg/apis/samplecontroller/conversion", "artifacts/deploy/webhook", "test/e2e/testdata/single-deployment"},
			mention: regexp.MustCompile(`--webhook|WEBHOOK|webhook-certificate|pkg/webhook|deploy/webhook|webhook/server|with-webhook|webhook(?:-alerts)?\.yaml|webhooks\.md`)},
		{name: "newkind", paths: []string{"hack/new-kind", "hack/naming", "hack/tree", "test/e2e/walkthrough_"}, mention: regexp.MustCompile(`new-?kind|hack/(naming|tree)`), needs: []string{"check", "explore"}},
		{name: "rename", mention: regexp.MustCompile(`rename\.go|rules? (?:[0-9]+(?:, | and ))*8\b|former Deployment|oldDeployments|S4\b`)},
		{name: "check", paths: []string{serviceFile}, mention: regexp.MustCompile(`(docs|test)/check|check\.md|make check|e2e\.sh check`)},
		{name: "explore", paths: []string{"test/sim"}, mention: regexp.MustCompile(`(docs|test)/explore|test/sim|explore\.md|make (explore|random)`)},
		{name: fork, paths: []string{"docs/from-stock.md", "docs/from-kubebuilder.md", "docs/tutorial.md", "hack/tutorial", "docs/decisions", "docs/performance.md", ".ci/run", "hack/verify-codegen.sh", "artifacts/examples/crd-status-subresource.yaml"},
			mention: regexp.MustCompile(`docs/performance|docs/decisions`)},
		{name: "bench", isMore: true, paths: []string{"test/bench", "hack/bench.sh"}, mention: regexp.MustCompile(`test/bench|hack/bench\.sh|make bench`), needs: []string{"check"}},
		{name: "compare", isMore: true, paths: []string{"test/compare"}, mention: regexp.MustCompile(`(test/|make )compare`), needs: []string{"explore"}},
		{name: "failover", isMore: true, paths: []string{"test/failover"}, mention: regexp.MustCompile(`(test/|make )(failover|outages)|TestFailover`), needs: []string{"check", "explore", "rename"}},
		{name: "hostile", isMore: true, paths: []string{"test/e2e/hostile_"}, mention: regexp.MustCompile(`make hostile|TestHostile`)},
		{name: "mutation", isMore: true, paths: []string{"docs/mutation.md", "hack/tools/mutation", "test/explore/faults", "test/explore/testdata"}, mention: regexp.MustCompile(`make mutate|mutation\.md|explore-faults`), needs: []string{"newkind", "explore", "rename"}},
		{name: "node", isMore: true, paths: []string{"hack/e2e-node.sh", "test/e2e/node_", "test/e2e/testdata/single-deployment"}, mention: regexp.MustCompile(`e2e-node`), needs: []string{"rename"}},
		{name: "release", isMore: true, paths: []string{"docs/release.md", ".github/workflows/release.yaml", "hack/release", "hack/verify-release.sh", "hack/tools/release", "hack/tools/helm"}, mention: regexp.MustCompile(`release\.(sh|md)|make (verify-)?release|hack/release|build_helm|write_chart`)},
		{name: "versions", isMore: true, paths: []string{"hack/cluster/versions"}, mention: regexp.MustCompile(`e2e-versions|cluster/versions`)},
	}
}

// pathWords splits a path into words.
var pathWords = regexp.MustCompile(`[/._-]+`)

// owns reports whether the file or folder belongs to the part.
func (p *part) owns(file string) bool {
	return slices.ContainsFunc(p.paths, func(path string) bool { return strings.HasPrefix(file, path) }) ||
		!p.isMore && slices.ContainsFunc(pathWords.Split(file, -1), func(word string) bool { return strings.TrimSuffix(word, "s") == strings.TrimSuffix(p.name, "s") })
}

// isDropped reports whether the file or folder belongs to a part that the fork is without.
func (o *options) isDropped(file string) bool {
	return slices.ContainsFunc(parts(), func(p part) bool { return slices.Contains(o.drop, p.name) && p.owns(file) })
}

// isOfSibling reports whether the file or folder is a sibling's, whose API has a version of its own.
func (o *options) isOfSibling(file string) bool {
	return slices.ContainsFunc(parts(), func(p part) bool { return p.kind != "" && p.owns(file) })
}

// isOther reports whether versions in the file are not Foo's, but a sibling's or those of a kind to copy.
func (o *options) isOther(file string) bool {
	return o.isOfSibling(file) || strings.HasPrefix(file, "test/newkind/") || strings.HasPrefix(file, "hack/new-kind/")
}

var (
	marker = regexp.MustCompile(`\+drop:([a-z,]+)`)
	// inlineRegion matches a region within a line of Markdown, marked a line that is a region of its own, and without
	// a comment for forks without that part. limit matches a line that begins or ends a region.
	inlineRegion = regexp.MustCompile(`<!-- \+drop:(?P<names>[a-z,]+) -->(?P<text>.*?)<!-- \+drop:end -->`)
	marked       = regexp.MustCompile(`(?m)(?P<text>\n.*\S) *(?://|#|<!--) \+drop:(?P<names>[a-z,]+)(?: -->)?$`)
	without      = regexp.MustCompile(`(?m)^([ \t]*(?://|#) )\+without:([a-z]+) (.*\n)|<!-- \+without:([a-z]+) (.*?) -->`)
	limit        = regexp.MustCompile(`^[ \t]*(?://|#|<!--) \+drop:([a-z,]+)(?: -->)?\n$`)
	// blankLines matches what a region leaves between two paragraphs, blankEnds what it leaves at the end of
	// a block. panel matches a panel of the dashboard, as JSON has no comments.
	blankLines = regexp.MustCompile(`\n\n\n+`)
	blankEnds  = regexp.MustCompile(`\n\n(\t*}\n)`)
	panel      = regexp.MustCompile(`(?m)^    \{\n(?:      .*\n)+    \},\n`)
)

// dropRegions returns the text without the regions of parts that the fork is without, and without markers. A
// region of several parts, with commas, is dropped if all of them are.
func (o *options) dropRegions(file, text string) (string, error) {
	for _, match := range marker.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(match[1], ",") {
			if name != "end" && !slices.ContainsFunc(parts(), func(p part) bool { return p.name == name }) {
				return "", fmt.Errorf("%s: +drop:%s names no part of this repository", file, name)
			}
		}
	}
	stays := func(names string) bool {
		return slices.ContainsFunc(strings.Split(names, ","), func(name string) bool { return !slices.Contains(o.drop, name) })
	}
	for _, form := range []*regexp.Regexp{inlineRegion, marked} {
		text = form.ReplaceAllStringFunc(text, func(found string) string {
			if !stays(form.ReplaceAllString(found, "${names}")) {
				return ""
			}
			return form.ReplaceAllString(found, "${text}")
		})
	}
	text = without.ReplaceAllStringFunc(text, func(found string) string {
		if stays(without.ReplaceAllString(found, "$2$4")) {
			return ""
		}
		return without.ReplaceAllString(found, "$1$3$5")
	})
	text = dropBetweenLimits(text, stays)
	if left := marker.FindString(text); left != "" {
		return "", fmt.Errorf("%s: %s has no counterpart; regions begin with +drop:NAME, end with +drop:end in another line", file, left)
	}
	text = blankEnds.ReplaceAllString(blankLines.ReplaceAllString(text, "\n\n"), "\n$1")
	return o.dropFromLists(file, text), nil
}

// dropBetweenLimits returns the text without the regions that do not stay. Regions may be nested. A limit without
// its counterpart is left.
func dropBetweenLimits(text string, stays func(names string) bool) string {
	var kept strings.Builder
	var open []bool
	last := ""
	for line := range strings.Lines(text) {
		match := limit.FindStringSubmatch(line)
		switch {
		case match == nil && !slices.Contains(open, false), match != nil && match[1] == "end" && len(open) == 0:
			kept.WriteString(line)
		case match == nil:
		case match[1] == "end":
			open = open[:len(open)-1]
		default:
			open, last = append(open, stays(match[1])), line
		}
	}
	if len(open) > 0 {
		kept.WriteString(last)
	}
	return kept.String()
}

// dropFromLists returns a manifest or dashboard without what names a sibling that the fork is without: alternatives
// in the expression of a query, and panels.
func (o *options) dropFromLists(file, text string) string {
	if ext := path.Ext(file); ext != ".json" && ext != ".yaml" {
		return text
	}
	for _, p := range parts() {
		if p.kind == "" || !slices.Contains(o.drop, p.name) {
			continue
		}
		text = panel.ReplaceAllStringFunc(strings.ReplaceAll(text, "|"+p.name, ""), func(panel string) string {
			if p.mention.MatchString(panel) {
				return ""
			}
			return panel
		})
	}
	return text
}

// link matches the target of a Markdown link to a file of the repository.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// checkLeftovers returns an error with what is left of this repository's names and of parts that the fork is
// without, and with links of documents to files that are not there.
func (o *options) checkLeftovers(files []*tree.File) error {
	// The example is in the description of metav1.Condition, which is in every CRD.
	all := []string{"foo.example.com/CamelCase"}
	for _, name := range []string{o.Module, o.copyright, o.Group, o.GroupPackage, naming.Camel(o.Program), o.Program, o.Kinds, o.Kind, o.Plural} {
		all = append(all, name, strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", ""))
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	for i := range all {
		all[i] = regexp.QuoteMeta(all[i])
	}
	ours := regexp.MustCompile("(?i)" + strings.Join(all, "|"))
	old := []*regexp.Regexp{regexp.MustCompile(`(?i:sample[-_ ]?controller)|Foo(?:[^a-z]|s|$)|\bfoos?(?:[^a-z]|$)|FOO`)}
	for _, p := range parts() {
		if p.mention != nil && slices.Contains(o.drop, p.name) {
			old = append(old, p.mention)
		}
	}
	exist := map[string]bool{".": true}
	for _, f := range files {
		for name := f.Path; name != "."; name = path.Dir(name) {
			exist[name] = true
		}
	}
	var left []error
	for _, f := range files {
		if !f.IsText() {
			continue
		}
		for i, line := range strings.Split(f.Path+"\n"+string(f.Data), "\n") {
			for _, name := range old {
				// The imports of packages that are gone go in the end.
				if !attribution.MatchString(line) && !strings.HasPrefix(line, "\t\""+o.Module) && name.MatchString(line) && name.MatchString(ours.ReplaceAllString(line, " ")) {
					left = append(left, fmt.Errorf("%s:%d: %s", f.Path, i, strings.TrimSpace(line)))
				}
			}
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				if target := path.Join(path.Dir(f.Path), match[1]); path.Ext(f.Path) == ".md" && !exist[target] && !tree.Generated.MatchString(target) {
					left = append(left, fmt.Errorf("%s:%d: links to %s, which is not there", f.Path, i, target))
				}
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("these lines would be left in the fork; mark them with +drop:NAME (docs/fork.md):\n%w", errors.Join(left...))
	}
	return nil
}

// attribution matches the line of a licence header that names the copyright holders.
var attribution = regexp.MustCompile(`(?m)^(.*)Copyright The sample-controller Authors\.$`)
