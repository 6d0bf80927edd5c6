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

package app

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

const (
	// memoryLimitVariable is the environment variable in which the manifests pass the memory
	// limit of the container, in bytes.
	memoryLimitVariable = "MEMORY_LIMIT"
	// goMemoryPercent is how much of that Go may use. The rest is for memory that the Go
	// runtime does not count, such as the pages of the program file.
	goMemoryPercent = 90
)

// applyMemoryLimit makes Go collect garbage more often before the memory of the container is
// used up: without a limit the heap grows to twice the live objects, whatever they are.
func applyMemoryLimit() error {
	limit, err := goMemoryLimit(os.Getenv("GOMEMLIMIT"), os.Getenv(memoryLimitVariable))
	if err != nil {
		return err
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return nil
}

// goMemoryLimit returns the memory limit for the Go runtime, 0 to leave its own: the user has
// set GOMEMLIMIT, or the limit of the container is unknown.
func goMemoryLimit(goMemLimit, container string) (int64, error) {
	if goMemLimit != "" || container == "" {
		return 0, nil
	}
	bytes, err := strconv.ParseInt(container, 10, 64)
	if err != nil || bytes <= 0 {
		return 0, fmt.Errorf("the environment variable %s is %q; give the memory limit of the container in bytes, as the manifests do, or leave it out", memoryLimitVariable, container)
	}
	return bytes / 100 * goMemoryPercent, nil
}
