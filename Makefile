# Copyright The sample-controller Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

SHELL := bash
.DEFAULT_GOAL := help

##@ Try it

.PHONY: run
run: ## Show the controller at work, on the cluster of KUBECONFIG or on a local one
	@hack/run.sh

.PHONY: cluster-up
cluster-up: ## Start a local cluster (CLUSTER_NAME, CLUSTER_NODES)
	@hack/cluster/up.sh

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and remove all of it
	@hack/cluster/down.sh

##@ Test it

.PHONY: test
test: ## All that must pass: verify, lint, unit, e2e, a part of faults
# One after the other, with -j too: the first failure is the last thing to be read.
	@$(MAKE) --no-print-directory verify
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory e2e
	@FAULTS=part $(MAKE) --no-print-directory faults

.PHONY: verify
verify: ## Check that generated code, modules and licence headers are in order
	@hack/verify-all.sh

.PHONY: lint
lint: ## Check format and style
	@hack/lint.sh

.PHONY: unit
unit: ## Run the unit tests, with all detectors on
	KUBE_CACHE_MUTATION_DETECTOR=true KUBE_PANIC_WATCH_DECODE_ERROR=true go test -race ./...
# What the detectors change is measured without them.
	go test -run '^Test(Bytes|Allocations)' . ./pkg/controller

.PHONY: e2e
e2e: ## Run the walkthroughs on a local cluster of their own
	@hack/e2e.sh

.PHONY: verify-build
verify-build: ## Build for all processors with empty caches, and compare the bytes
	@FULL=1 hack/verify-build.sh

.PHONY: e2e-image
e2e-image: ## Run walkthrough 3 with the image in containers (CONTAINER_TOOL)
	@hack/e2e-image.sh

.PHONY: faults
faults: ## Run every scenario under every fault of requests and watches, all changes of leader and all outages (FAULTS=part for a part, without outages)
	@hack/faults.sh
	@hack/failover.sh
	@[[ "$${FAULTS:-all}" == part ]] || hack/outages.sh

.PHONY: outages
outages: ## Only kill the API server, etcd and the whole control plane while users are at work (Linux)
	@hack/outages.sh

.PHONY: failover
failover: ## Only change the leader while users are at work: told to end, killed, rolled from the former commit (FAILOVER_FROM) and back (Linux)
	@hack/failover.sh

.PHONY: soak
soak: ## Watch a controller with nothing to do, and one in a fight, for ten minutes
	@CLUSTER_NODES=6 hack/e2e.sh -tags=e2e,soak -run=TestSoak -timeout=40m

.PHONY: mutate
mutate: ## Break the code in every place and see that a unit test notices (FILES, MUTATE_MATCH)
	@hack/mutate.sh

.PHONY: random
random: ## Play random operations and faults against an API server in memory (SEQUENCES)
	RAPID_CHECKS=$${SEQUENCES:-5000} go test -count=1 -timeout 30m -run '^TestRandom' -v .

.PHONY: bench
bench: ## Measure the controller against a plain client, on local clusters of their own, and print a table with targets (PEER, Linux)
	@hack/bench.sh

.PHONY: bench-full
bench-full: ## Measure over growing numbers of objects as well, and draw plots (BENCH_OUT)
	@BENCH_FULL=yes BENCH_OUT="$${BENCH_OUT:-bench-results}" hack/bench.sh

##@ Change it

.PHONY: generate
generate: ## Regenerate all that is derived from the Go types in pkg/apis
	@hack/update-codegen.sh
	@hack/update-manifests.sh
	@go test -run=TestOperationsDoc -update-docs .

.PHONY: build
build: ## Build bin/sample-controller
	@source hack/lib.sh && build_controller

##@ Deploy it

.PHONY: image
image: ## Build the image IMG (CONTAINER_TOOL, ARCH)
	@hack/image.sh "$(IMG)"

.PHONY: deploy
deploy: ## Run the image IMG in the cluster that kubectl talks to (WEBHOOK=yes for admission and conversion)
	@hack/deploy.sh up "$(IMG)"

.PHONY: undeploy
undeploy: ## Remove the controller from there, and all Foos with their Deployments
	@hack/deploy.sh down

##@ Tidy up

.PHONY: clean
clean: ## Stop the local clusters and remove everything that was built
	@hack/cluster/down.sh --all
	rm -rf bin .cluster sample-controller coverage.*

.PHONY: help
help: ## Say what there is to make
	@source hack/lib.sh && print_make_help Makefile
