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
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// dropper removes components from the files of a repository.
type dropper struct {
	components []component
	// enumeration matches several kinds, listing several names of controllers.
	enumeration, listing *regexp.Regexp
}

func newDropper(o *options) *dropper {
	d := &dropper{}
	item := "(?:[Ee]ach |[Aa] )?`?(?:" + o.repository.kinds + "|" + o.repository.kind
	name := "(?:" + strings.ToLower(o.repository.kind)
	for _, c := range o.repository.components {
		if c.name == original || slices.Contains(o.drop, c.name) {
			d.components = append(d.components, c)
		}
		if c.kind != "" {
			item += "|" + c.kinds + "|" + c.kind
			name += "|" + c.name
		}
	}
	item, name = item+")`?", name+")"
	d.enumeration = regexp.MustCompile(`\b` + item + `(?:(?:,\s|,?\s(?:and|or)\s)` + item + `)+\b`)
	d.listing = regexp.MustCompile(`\b` + name + `(?:, ` + name + `)+\b`)
	return d
}

// isDropped reports whether all components of that list are dropped.
func (d *dropper) isDropped(names string) bool {
	for name := range strings.SplitSeq(names, ",") {
		if !slices.ContainsFunc(d.components, func(c component) bool { return c.name == name }) {
			return false
		}
	}
	return true
}

// named returns the component that the line of a manifest or document names, "" for none.
func (d *dropper) named(line string) string {
	for _, c := range d.components {
		if c.text != nil && c.text.MatchString(line) {
			return c.name
		}
	}
	return ""
}

// files returns the files that stay, without what they have about the components.
func (d *dropper) files(files []*file) ([]*file, error) {
	var kept []*file
	for _, f := range files {
		if !d.owned(f) {
			kept = append(kept, f)
		}
	}
	paths := d.droppedPaths(files, kept)
	for _, f := range kept {
		text, err := d.regions(f.path, string(f.data))
		if err != nil {
			return nil, err
		}
		text = d.enumerations(text, d.enumeration)
		switch path.Ext(f.path) {
		case ".yaml", ".json":
			text = d.manifest(text)
		case ".md":
			text = d.document(d.enumerations(text, d.listing))
		}
		f.data = []byte(text)
	}
	return kept, d.prune(files, kept, paths)
}

// owned reports whether the whole file belongs to a component: by its path, or as an example
// of its kind.
func (d *dropper) owned(f *file) bool {
	return slices.ContainsFunc(d.components, func(c component) bool {
		return c.owns(f.path) || c.kind != "" && path.Ext(f.path) == ".yaml" &&
			regexp.MustCompile(`(?m)^kind: "?`+c.kind+`"?$`).Match(f.data) && !strings.Contains(string(f.data), "\n---\n")
	})
}

func (d *dropper) droppedPaths(all, kept []*file) []string {
	var dropped []string
	for _, f := range all {
		if !slices.Contains(kept, f) {
			dropped = append(dropped, f.path)
		}
	}
	return dropped
}

var (
	// inlineRegion matches a region within a line of Markdown.
	inlineRegion = regexp.MustCompile(`<!-- \+drop:([a-z,]+) -->(.*?)<!-- \+drop:end -->`)
	// marker matches a line that begins or ends a region.
	marker = regexp.MustCompile(`^\s*(?://|#|<!--) \+drop:([a-z,]+)(?: -->)?$`)
)

// regions removes the regions between +drop:NAMES and +drop:end that belong to dropped
// components, and all markers.
func (d *dropper) regions(path, text string) (string, error) {
	text = inlineRegion.ReplaceAllStringFunc(text, func(region string) string {
		match := inlineRegion.FindStringSubmatch(region)
		if d.isDropped(match[1]) {
			return ""
		}
		return match[2]
	})
	var kept []string
	open, dropping := 0, false
	for i, line := range strings.SplitAfter(text, "\n") {
		switch match := marker.FindStringSubmatch(strings.TrimSuffix(line, "\n")); {
		case match == nil:
			if !dropping {
				kept = append(kept, line)
			}
		case (match[1] == "end") != (open > 0):
			return "", fmt.Errorf("%s:%d: +drop:%s has no counterpart; regions begin with +drop:NAME, end with +drop:end and are not nested", path, i+1, match[1])
		case match[1] == "end":
			open, dropping = 0, false
		default:
			open, dropping = i+1, d.isDropped(match[1])
		}
	}
	if open > 0 {
		return "", fmt.Errorf("%s:%d: the region has no +drop:end", path, open)
	}
	return blankLines.ReplaceAllString(strings.Join(kept, ""), "\n\n"), nil
}

// blankLines matches what a region leaves between two paragraphs.
var blankLines = regexp.MustCompile(`\n\n\n+`)

// enumerations removes kinds from enumerations such as "Foos, Memcacheds and CronTabs". It
// keeps one of which nothing would be left.
func (d *dropper) enumerations(text string, form *regexp.Regexp) string {
	return form.ReplaceAllStringFunc(text, func(all string) string {
		if d.named(all) == "" {
			return all
		}
		conjunction := []string{"", ", "}
		if match := regexp.MustCompile(`,?(\s(?:and|or)\s)`).FindStringSubmatch(all); match != nil {
			conjunction = match
		}
		var kept []string
		for _, item := range regexp.MustCompile(`,\s|,?\s(?:and|or)\s`).Split(all, -1) {
			if d.named(item) == "" {
				kept = append(kept, item)
			}
		}
		if len(kept) == 0 {
			return all
		}
		last := kept[len(kept)-1]
		if len(kept) == 1 {
			return last
		}
		return strings.Join(kept[:len(kept)-1], ", ") + conjunction[1] + last
	})
}

// manifest removes components from alternations, and each item of a list that names one.
func (d *dropper) manifest(text string) string {
	for _, c := range d.components {
		if c.text != nil {
			text = strings.NewReplacer("|"+c.name, "", c.name+"|", "").Replace(text)
		}
	}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if d.named(lines[i]) == "" {
			continue
		}
		first, last, ok := item(lines, i)
		if !ok {
			continue
		}
		lines = slices.Delete(lines, first, last+1)
		if first > 0 && first < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[first]), "]") {
			lines[first-1] = strings.TrimSuffix(lines[first-1], ",")
		}
		i = first - 1
	}
	return strings.Join(lines, "\n")
}

func indentation(line string) int {
	return len(line) - len(strings.TrimLeft(line, " "))
}

// item returns the lines of the item of a YAML list, or of the object in a JSON list, that
// line i is in.
func item(lines []string, i int) (first, last int, ok bool) {
	inner := indentation(lines[i])
	for first = i; first >= 0; first-- {
		switch indent, text := indentation(lines[first]), strings.TrimSpace(lines[first]); {
		case text == "{" && indent < inner:
			for last = i; last < len(lines); last++ {
				if indentation(lines[last]) == indent && strings.HasPrefix(strings.TrimSpace(lines[last]), "}") {
					return first, last, true
				}
			}
			return 0, 0, false
		case strings.HasPrefix(text, "- ") && indent <= inner && (first == i || indent < inner):
			last = first
			for last+1 < len(lines) && (indentation(lines[last+1]) > indent && strings.TrimSpace(lines[last+1]) != "") {
				last++
			}
			return first, last, true
		}
	}
	return 0, 0, false
}

// document removes from Markdown the sections whose heading names a component, the items of
// lists that begin with one, and rows and columns of tables.
func (d *dropper) document(text string) string {
	var kept []string
	level, columns, listItem := 0, []bool(nil), false
	for _, line := range strings.Split(text, "\n") {
		heading := len(line) - len(strings.TrimLeft(line, "#"))
		isHeading := heading > 0 && strings.HasPrefix(line[heading:], " ")
		if isHeading && (level == 0 || heading <= level) {
			level = 0
			if d.named(line) != "" {
				level = heading
			}
		}
		if !strings.HasPrefix(line, "|") {
			columns = nil
		}
		listItem = listItem && strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "- ") && d.named(strings.Fields(line + " -")[1]) != ""
		switch {
		case level > 0 || listItem:
		case strings.HasPrefix(line, "|"):
			if row, ok := d.row(line, &columns); ok {
				kept = append(kept, row)
			}
		default:
			kept = append(kept, line)
		}
	}
	return blankLines.ReplaceAllString(strings.Join(kept, "\n"), "\n\n")
}

// row removes the columns of a table whose heading names a component. It returns false for
// a row whose first cell does.
func (d *dropper) row(line string, columns *[]bool) (string, bool) {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	if *columns == nil {
		*columns = make([]bool, len(cells))
		for i, cell := range cells {
			(*columns)[i] = i > 0 && d.named(cell) != ""
		}
	} else if d.named(cells[0]) != "" {
		return "", false
	}
	if len(cells) != len(*columns) {
		return line, true
	}
	var kept []string
	for i, cell := range cells {
		if !(*columns)[i] {
			kept = append(kept, cell)
		}
	}
	return "|" + strings.Join(kept, "|") + "|", true
}
