//go:build compare

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

// Package compare compares the simulated API server of test/sim with a real one: etcd and kube-apiserver, whose
// controllers are stopped, so that nothing is asynchronous. Each sequence of requests is one client's, in one
// namespace. It draws what the Foo controller and its users send, and what the garbage collector and the Deployment
// controller write. After each request the answers are the same, and the events of both watches up to that version;
// UIDs and resource versions are mapped, times are masked, texts of messages are not compared.
//
// hack/e2e.sh compare starts the control plane. The tests have the build tag compare.
package compare
