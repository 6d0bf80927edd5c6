//go:build !race

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

package controller

import "testing"

// TestAllocationsOfTheWorker is not for the race detector, which allocates as well.
func TestAllocationsOfTheWorker(t *testing.T) {
	const most = 16 // five are for the places of the key and its namespace in the queue
	if got := testing.AllocsPerRun(1000, newRound(t)); got > most {
		t.Errorf("%v allocations to take a key through the Worker, want %d at most", got, most)
	}
}
