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

// Package bench measures the controller on local clusters of its own: what it does in a
// second, what it asks of the API server, what it keeps in memory, and how long users
// wait, each against what a plain client comes to in the same run. `make bench` runs it
// by hack/bench.sh, which starts and removes the clusters; package report knows the
// targets. The measurements are tests with the build tag bench.
package bench
