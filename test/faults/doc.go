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

// Package faults runs the binary of the controllers on a real API server and injects
// faults.
//
// TestFaults runs a list of scenarios for each kind: once without a fault, once for each
// request that the controller sent in that run and each way in which the request or the
// process that sent it can fail, and once for each way in which its watches can fail.
// Every run must reach the final state of the faultless one, stay there without a write,
// and keep the invariants S1 to S4 of the contract at each write. The kinds, and what users
// do with them, come from the files testdata/suites.yaml beside the controllers (test/kinds);
// a kindSuite is what follows for one kind, and what a kind has beyond that. policies.yaml
// makes admission hold the Pods of some Deployments and change others. Random operations on
// Foos must end in a state that the contract allows. hack/e2e.sh faults creates the cluster and
// removes it.
//
// The tests have the build tag faults.
package faults
