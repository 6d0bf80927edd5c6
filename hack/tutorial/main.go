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

// Command tutorial runs a page such as docs/tutorial.md from top to bottom: it types the
// commands in a shell and compares their output, applies the patches and writes the files.
// hack/verify-tutorial.sh runs it; page.go describes the blocks of a page.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/utils/clock"
)

const page, readme = "docs/tutorial.md", "README.md"

func main() {
	full := flag.Bool("full", false, "also run the blocks that are marked full")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: %s [-full] ROOT WORK\nruns %s of the repository ROOT in the empty directory WORK\n", os.Args[0], page)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, flag.Arg(0), flag.Arg(1), *full)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ERROR:", err)
		os.Exit(1)
	}
}

// run runs the page of the repository root in the directory work.
func run(ctx context.Context, root, work string, full bool) error {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return err
	}
	overview, err := os.ReadFile(filepath.Join(root, readme))
	if err != nil {
		return err
	}
	blocks, err := parsePage(page, string(text))
	if err != nil {
		return err
	}
	r, err := newRunner(work, string(overview), full, os.Stdout, clock.RealClock{})
	if err != nil {
		return err
	}
	return r.run(ctx, blocks)
}
