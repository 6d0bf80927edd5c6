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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	fence     = "```"
	prompt    = "$ "
	interrupt = "^C"
	// notRun begins the first line of a block of commands that are not run. The rest of the
	// line says why, so that readers know it too.
	notRun = "# Not tested: "
	// anything stands for any text in a line of output and, alone in a line, for any lines.
	anything = "…"
)

// block is a fenced block of a page. Its language says what it is:
//
//	console     commands behind "$ ", each with its output; without output, any will do
//	diff        a patch of files in the current directory, for git apply
//	mermaid     a figure, which README.md has too
//	any other   the content of the file that the word file=PATH names
//
// More words may follow the language:
//
//	full         only the full form runs the block, because it needs a cluster or takes long
//	fails        the last command fails
//	background   the command runs in a second terminal, and goes on after that output; "^C" ends it
type block struct {
	// place is the page, and line the number of the line of the fence.
	place    string
	line     int
	language string
	file     string

	full, fails, background bool

	lines []string
}

// command is a command of a block and the output that the page shows.
type command struct {
	line   int
	text   string
	output []string
}

// parsePage returns the blocks of the page. All code is in blocks that say what they are.
func parsePage(place, text string) ([]*block, error) {
	var blocks []*block
	var open *block
	for i, line := range strings.Split(text, "\n") {
		switch {
		case open != nil && line == fence:
			blocks, open = append(blocks, open), nil
		case open != nil:
			open.lines = append(open.lines, line)
		case strings.HasPrefix(line, fence):
			var err error
			if open, err = newBlock(place, i+1, strings.Fields(line[len(fence):])); err != nil {
				return nil, err
			}
		case strings.HasPrefix(line, "    "):
			return nil, fmt.Errorf("%s:%d: an indented block is not run; put it between lines with %s", place, i+1, fence)
		}
	}
	if open != nil {
		return nil, open.errorf(0, "the block has no end")
	}
	return blocks, nil
}

// newBlock returns a block without lines.
func newBlock(place string, line int, words []string) (*block, error) {
	b := &block{place: place, line: line}
	if len(words) > 0 {
		b.language, words = words[0], words[1:]
	}
	for _, word := range words {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "full":
			b.full = true
		case "fails":
			b.fails = true
		case "background":
			b.background = true
		case "file":
			b.file = value
		default:
			return nil, b.errorf(0, "%q means nothing behind the language; there are full, fails, background and file=PATH", word)
		}
	}
	isFile := !slices.Contains([]string{"console", "diff", "mermaid"}, b.language)
	switch {
	case isFile && !filepath.IsLocal(b.file):
		return nil, b.errorf(0, "a block of %q needs file=PATH with a path below the current directory; commands are in blocks of console", b.language)
	case !isFile && b.file != "", b.language != "console" && (b.fails || b.background):
		return nil, b.errorf(0, "a block of %s is no file or no command; remove what does not fit from %q", b.language, words)
	}
	return b, nil
}

// errorf returns an error with the place of the line in the block, 0 for its fence.
func (b *block) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", b.place, b.line+line, fmt.Errorf(format, args...))
}

// commands returns the commands of the block, none if it is not run.
func (b *block) commands() ([]*command, error) {
	var all []*command
	var last *command
	for i, line := range b.lines {
		switch {
		case i == 0 && strings.HasPrefix(line, notRun):
			return nil, nil
		case line == interrupt:
			last = &command{line: i + 1, text: interrupt}
			all = append(all, last)
		case strings.HasPrefix(line, prompt):
			last = &command{line: i + 1, text: line[len(prompt):]}
			all = append(all, last)
		case last == nil:
			return nil, b.errorf(i+1, "output without a command, which begins with %q", prompt)
		case len(last.output) == 0 && strings.HasSuffix(last.text, `\`):
			last.text += "\n" + line
		default:
			last.output = append(last.output, line)
		}
	}
	if last == nil {
		return nil, b.errorf(0, "the block has no command, which begins with %q", prompt)
	}
	return all, nil
}

// matches reports whether the output begins with the lines of the page, and ends there too if
// that is asked for.
func matches(lines []string, output string, whole bool) bool {
	pattern := `\A`
	for _, line := range lines {
		if line == anything {
			pattern += `(?:.*\n)*?`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " \t")), anything, `.*`) + `[ \t]*\n`
	}
	if whole {
		pattern += `\z`
	}
	return regexp.MustCompile(pattern).MatchString(strings.TrimRight(output, "\n") + "\n")
}
