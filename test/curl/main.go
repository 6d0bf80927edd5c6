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
// curl. It supports what the walkthroughs use: a URL and the options -f, -s, -S and -L.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		os.Exit(1)
	}
}

// run writes the response body to the output as it arrives.
func run(arguments []string, output io.Writer) error {
	var url string
	var fail, follow bool
	for _, argument := range arguments {
		switch {
		case !strings.HasPrefix(argument, "-"):
			url = argument
		case strings.Trim(argument[1:], "fsSL") != "":
			return fmt.Errorf("option %s: only -f, -s, -S and -L are supported", argument)
		default:
			fail = fail || strings.Contains(argument, "f")
			follow = follow || strings.Contains(argument, "L")
		}
	}
	if url == "" {
		return errors.New("no URL given")
	}

	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		if follow {
			return nil
		}
		return http.ErrUseLastResponse
	}}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if fail && response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the requested URL returned error: %d", response.StatusCode)
	}
	_, err = io.Copy(output, response.Body)
	return err
}
