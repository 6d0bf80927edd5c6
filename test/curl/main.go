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

// Command curl replaces curl in the end-to-end tests, so that they run on machines without
// curl. It supports what the walkthroughs use: a URL after the options -sSfL, which it has always on.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	if err := run(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		os.Exit(1)
	}
}

// run writes the response body as it arrives.
func run(url string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the requested URL returned error: %s", response.Status)
	}
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
