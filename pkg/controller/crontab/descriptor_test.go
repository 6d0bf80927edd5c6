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

package crontab

import (
	"flag"
	"io"
	"strings"
	"testing"
)

// TestMinIntervalFlag parses the flag as the process does.
func TestMinIntervalFlag(t *testing.T) {
	for arguments, want := range map[string]struct{ value, err string }{
		"":                             {value: "10s"},
		"--crontab-min-interval=1s":    {value: "1s"},
		"--crontab-min-interval=1h":    {value: "1h0m0s"},
		"--crontab-min-interval=999ms": {err: "-crontab-min-interval: must be at least 1s"},
		"--crontab-min-interval=-1m":   {err: "-crontab-min-interval: must be at least 1s"},
		"--crontab-min-interval=10":    {err: `-crontab-min-interval: time: missing unit in duration "10"; give a duration such as 10s`},
	} {
		flags := flag.NewFlagSet("test", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		descriptor := NewDescriptor()
		descriptor.AddFlags(flags)
		err := flags.Parse(strings.Fields(arguments))
		if want.err != "" {
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("rule C25: %s: %v, want %q in it", arguments, err, want.err)
			}
			continue
		}
		if got := flags.Lookup("crontab-min-interval").Value.String(); err != nil || got != want.value {
			t.Errorf("rule C25: with %q the shortest interval is %s, error %v, want %s", arguments, got, err, want.value)
		}
	}
}
