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

// Command release makes the parts of a release that take more than a shell: the licence texts of
// what a binary links, archives with the same bytes everywhere, the image of several platforms, a
// Helm chart, and the provenance. hack/release.sh runs it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run runs one of the commands.
func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("usage: release licenses|pack|image|chart|provenance FLAGS")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	var (
		dir     = flags.String("dir", "", "the directory that is read")
		out     = flags.String("out", "", "what is written")
		binary  = flags.String("binary", "", "licenses: the binary")
		created = flags.String("time", "", "pack and image: the time of all files, in RFC 3339")
		from    origin
	)
	flags.StringVar(&from.program, "program", "", "image and chart: the name of the binary")
	flags.StringVar(&from.version, "version", "", "the version")
	flags.StringVar(&from.revision, "revision", "", "image and provenance: the commit")
	flags.StringVar(&from.source, "source", "", "image and provenance: where the sources are, if that is known")
	flags.StringVar(&from.module, "module", "", "provenance: the path of the Go module")
	flags.StringVar(&from.image, "image", "", "provenance: the image that the manifests name, without a tag")
	flags.StringVar(&from.platforms, "platforms", "", "provenance: the platforms of the binaries")
	flags.StringVar(&from.toolchain, "go", "", "provenance: the version of Go")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	switch arguments[0] {
	case "licenses":
		return writeLicenses(*binary, *dir, *out)
	case "chart":
		return writeChart(*out, from, flags.Args())
	case "provenance":
		return writeProvenance(*out, *dir, from)
	}
	at, err := time.Parse(time.RFC3339, *created)
	if err != nil {
		return fmt.Errorf("-time: %w", err)
	}
	from.created = at.UTC()
	switch arguments[0] {
	case "pack":
		return pack(*out, *dir, from.created)
	case "image":
		return writeImage(*out, from.metadata, flags.Args())
	default:
		return fmt.Errorf("no command %q", arguments[0])
	}
}
