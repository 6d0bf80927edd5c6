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

// Package faults runs the controllers' binary on a real API server through a list of
// scenarios of each kind of objects, again and again: once without a fault, and then
// once for each API request that it made in that run and each way in which a request,
// or the process that sent it, can fail, and once for each way in which its watches
// can go wrong. Every run must end in the state of the fault-free one, stay there
// without a write, and keep the invariants S1 to S3 of the contract at each write.
// What differs between Foos, Memcacheds and CronTabs is described by a kind; all else
// is shared. How often a CronTab runs depends on the clock, so of its runs it is judged
// that each was started once or given up. Beyond that the suite plays random operations
// on Foos (package random), which must end as the contract says.
// Run it with hack/faults.sh, which starts the cluster and removes it.
//
// TestOutages is another suite, on a cluster of its own, since it kills parts of
// the control plane while users change Foos. What happened is then read from etcd,
// and judged by the same invariants. Run it with hack/outages.sh.
//
// TestFailover is a third one: replicas run as the manifests say, with the rights and
// under the Priority and Fairness that they would meet, and their leader is told to
// end, killed, and replaced by another build while users change Foos. Beyond the
// invariants one of them acts at a time, no Foo leaves Ready over it, and no change is
// forgotten. Run it with hack/failover.sh.
//
// The tests have the build tag faults.
package faults
