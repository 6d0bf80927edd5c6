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

// Package bench measures the controller on local clusters: throughput, requests to the API
// server, memory and latency. hack/bench.sh (`make bench`) starts the clusters and runs the
// measurements, which are tests with the build tag bench: each measures one program on one
// cluster, the controller or the programs in peer and plain with which it is compared. Package
// report has the targets and computes the ratios and their intervals.
package bench
