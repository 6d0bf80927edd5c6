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

// Package failover runs the binary of the controllers while the control plane fails or the
// leader changes, and users change Foos. It reads the history of all objects from etcd, checks
// the invariants S1 to S4 of the contract at each write, and the final state.
//
// TestOutages kills parts of the control plane (hack/e2e.sh outages).
//
// TestFailover runs replicas as the manifests say, with their rights and under API
// Priority and Fairness. It terminates and kills the leader, and replaces it by another
// build. Beyond the invariants, no unchanged Foo stops being Ready, and every change of a spec
// reaches its status. S5 is judged by the audit log and the revisions of the Lease
// (hack/e2e.sh failover).
//
// Each needs a cluster of its own. The tests have the build tag faults.
package failover
