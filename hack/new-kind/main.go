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

// Command new-kind adds a kind and its controller to this repository, or to a fork of it: the
// types, the controller with its tests, an example, the contract, and the line in main.go. Then
// it runs `make generate`. It works on a copy, so that a failure leaves the tree unchanged.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := notify(context.Background())
	err := run(ctx, ".", os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ERROR:", err)
		os.Exit(1)
	}
}

// notify returns a context that ends at a signal. Until stop is called signals do nothing else.
func notify(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// run adds the kind that the arguments describe to the repository in that directory.
func run(ctx context.Context, root string, args []string) error {
	in, err := parseInput(args)
	if err != nil {
		return err
	}
	repo, err := readRepository(root)
	if err != nil {
		return err
	}
	k, err := newKind(in, repo)
	if err != nil {
		return err
	}
	files, err := render(k)
	if err != nil {
		return err
	}
	if files["main.go"], err = register(repo, k); err != nil {
		return err
	}
	if err := apply(ctx, repo, k, files); err != nil {
		return err
	}
	fmt.Print(next(k))
	return nil
}

// next returns what the user can do now, and what to know.
func next(k *kind) string {
	text := strings.ReplaceAll(nextSteps, "KIND", k.Singular)
	if k.Owned.Rights != "" {
		text += "\nNote: " + k.Owned.Rights + "\n"
	}
	return text
}

const nextSteps = `
Done. Next:

  pkg/controller/KIND   the controller: start with controller.go and KIND.go
  docs/KIND.md          what it does, rule by rule, and commands to try it
  go test ./pkg/controller/KIND
  git add -A && git commit

After a change of the types or of an RBAC marker: make generate.
`
