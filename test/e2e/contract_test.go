//go:build e2e

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

package e2e

import "testing"

// The scripts have what a simulated cluster would not show of the Foo contract.

func TestContract(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("contract")
}

func TestContractAdoption(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("contract_adoption")
}

// +drop:rename

func TestContractRename(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("contract_rename")
}

// +drop:end
