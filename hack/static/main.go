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

// Command static fails unless a file is a static program for Linux and the given processor:
// without a dynamic linker and libraries. It replaces file and readelf, which not every
// machine has.
package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
)

// machines maps GOARCH to the processor in the ELF header.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64,
	"arm64": elf.EM_AARCH64,
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: static FILE GOARCH")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func check(path, arch string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if want := machines[arch]; file.Machine != want || file.Type != elf.ET_EXEC {
		return fmt.Errorf("is %v for %v, want %v for %v", file.Type, file.Machine, elf.ET_EXEC, want)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("is linked dynamically: it has a segment %v", segment.Type)
		}
	}
	return nil
}
