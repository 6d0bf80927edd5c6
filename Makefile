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
run: ## Build and run the controller with an example Foo, on the cluster of KUBECONFIG or a local one
	@hack/run.sh

.PHONY: cluster-up
cluster-up: ## Start a local cluster (CLUSTER_NAME, CLUSTER_NODES)
	@hack/cluster.sh up

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and delete its files
	@hack/cluster.sh down

##@ Test it

.PHONY: test
test: ## Run verify, lint, unit and e2e, and a part of other suites
	@hack/test.sh

.PHONY: verify
verify: ## Check that generated files, modules and licence headers are up to date
	@hack/verify.sh

.PHONY: lint
lint: ## Check format and style
	@hack/verify.sh lint

.PHONY: unit
# The race detector needs cgo. The tools in hack do one thing at a time, and their tests compute so much that the
# detector would take minutes. On a loaded machine a package may take longer than go's limit of ten minutes.
# The tests of the program run a second time without detectors: some count allocations or bytes, and the
# detectors allocate; others simulate years.
unit: ## Run the unit tests with the race and cache mutation detectors
	@source hack/lib.sh && set -o pipefail && go list ./... | grep -v /hack/ | \
		CGO_ENABLED=1 KUBE_CACHE_MUTATION_DETECTOR=true KUBE_PANIC_WATCH_DECODE_ERROR=true xargs go test -race -timeout 20m
	@source hack/lib.sh && go test ./hack/...
	@source hack/lib.sh && go test . ./pkg/...

.PHONY: e2e
e2e: ## Run the end-to-end tests on a local cluster that they start
	@hack/e2e.sh

.PHONY: verify-build
verify-build: ## Build twice for all processors, once with an empty cache, and compare the bytes
	@FULL=1 hack/verify.sh build

.PHONY: e2e-image
e2e-image: ## Run two replicas with the image in containers (CONTAINER_TOOL)
	@hack/e2e.sh image

# +drop:node
.PHONY: e2e-node
e2e-node: ## Run the end-to-end tests that need a real node: kubelet, containerd and runc (Linux, root)
	@hack/e2e-node.sh
# +drop:end

# +drop:versions
.PHONY: e2e-versions
e2e-versions: ## Run the walkthroughs and the contract's end-to-end tests on other versions of Kubernetes (VERSIONS)
	@hack/e2e.sh versions
# +drop:end

# +drop:failover
.PHONY: outages
outages: ## Kill the API server, etcd and the whole control plane under load (Linux)
	@hack/e2e.sh outages
# +drop:end

# +drop:failover
.PHONY: failover
failover: ## Change the leader under load: SIGTERM, SIGKILL, SIGSTOP, no answers, rollout from the previous commit (FAILOVER_FROM) and back (Linux)
	@hack/e2e.sh failover
# +drop:end

# +drop:hostile
.PHONY: hostile
hostile: ## Measure what others notice of a namespace with ten thousand failing objects, and of very large ones
	@hack/e2e.sh -tags=e2e,hostile -run=^TestHostile
# +drop:end

.PHONY: soak
soak: ## Leave many Foos alone for ten minutes, over resyncs and restarts, and see that nothing is written
	@CLUSTER_NODES=6 hack/e2e.sh -tags=e2e,soak -run=TestSoak -timeout=40m

# +drop:mutation
.PHONY: mutate
mutate: ## Change each operator of the code and see that a unit test fails (PKGS)
	@PKGS="$(PKGS)" hack/verify.sh mutation
# +drop:end

# +drop:explore
.PHONY: random
random: ## Explore at random: more operations and faults than make explore has (SEQUENCES)
	RAPID_CHECKS=$${SEQUENCES:-5000} go test -count=1 -timeout 30m -run '^TestRandom' -v . ./pkg/controller/...
# +drop:end

# +drop:bench
.PHONY: bench
bench: ## Measure the controller and a peer on local clusters, and compare them with benchstat (Linux)
	@hack/bench.sh
# +drop:end

##@ Change it

# +drop:fork
.PHONY: fork
fork: ## Make a repository of your own in DIR (MODULE, GROUP, VERSION, KIND; see docs/fork.md)
	@source hack/lib.sh && go run ./hack/fork

.PHONY: tutorial
tutorial: ## Run every command of docs/tutorial.md, with a local cluster; make verify leaves the cluster out
	@FULL=1 hack/verify.sh tutorial
# +drop:end

.PHONY: generate manifests
generate manifests: ## Regenerate everything that is derived from the types in pkg/apis, the RBAC markers and the descriptors
	@hack/update-codegen.sh
	@go test -run=TestOperationsDoc -update-docs .

# +drop:newkind
.PHONY: new-kind
new-kind: ## Add a kind with its controller, tests, manifests and contract (KIND, GROUP, VERSION, PLURAL, SHORT, EXTERNAL=yes; see CONTRIBUTING.md)
	@source hack/lib.sh && go run ./hack/new-kind
# +drop:end

# +drop:compare
.PHONY: compare
compare: ## Compare the simulated API server of the tests with a real one, without controllers (COMPARE_REQUESTS)
	@hack/e2e.sh compare
# +drop:end

# +drop:check
.PHONY: check
check: ## Check the controller of each kind as a black box, with every fault (docs/check.md)
	@hack/e2e.sh check
# +drop:end

# +drop:explore
.PHONY: explore
explore: ## Explore every interleaving of two operations, and of one with a fault, in a small scope (EXPLORE_STATES)
	@source hack/lib.sh && EXPLORE_STATES="$${EXPLORE_STATES:-200000}" GOMEMLIMIT=10GiB go test -count=1 -parallel 1 -timeout 60m -run '^TestExplore$$' -v . ./pkg/controller/... ./test/...
# +drop:end

# +drop:mutation
.PHONY: explore-faults
explore-faults: ## Plant faults in a copy and see that the exploration finds them (FAULTS; WITHOUT="detached leader held")
	@source hack/lib.sh && go run ./test/explore/faults
# +drop:end

.PHONY: build
build: ## Build bin/sample-controller
	@source hack/lib.sh && build_static bin/sample-controller

##@ Deploy it

.PHONY: image docker-build
image docker-build: ## Build the image IMG (CONTAINER_TOOL, ARCH)
	@hack/deploy.sh image "$(IMG)"

.PHONY: docker-push
docker-push: ## Push the image IMG to its registry (CONTAINER_TOOL)
	@hack/deploy.sh push "$(IMG)"

.PHONY: install
install: ## Apply the CRDs alone, for a controller that runs outside the cluster
	@hack/deploy.sh install_crds

.PHONY: uninstall
uninstall: ## Delete the objects of all kinds, wait until what they own is gone, and delete the CRDs
	@hack/deploy.sh uninstall_crds

.PHONY: deploy
deploy: ## Run the image IMG in the cluster of the current kubectl context (its variables: hack/deploy.sh)
	@hack/deploy.sh up "$(IMG)"

.PHONY: undeploy
undeploy: ## Delete the objects of all kinds, wait until what they own is gone, and delete the controller, its CRDs, RBAC and namespace
	@hack/deploy.sh down

# +drop:release
##@ Release it

.PHONY: release
release: ## Write the release VERSION of this commit to dist/VERSION (DIR, IMAGE; see docs/release.md)
	@hack/release.sh
# +drop:end

# +drop:release
.PHONY: verify-release
verify-release: ## Make a release of all platforms from two clones, once with an empty cache, and compare the bytes
	@FULL=1 hack/verify-release.sh
# +drop:end

##@ Tidy up

.PHONY: clean
clean: ## Stop the local clusters and delete everything that was built
	@for dir in .cluster/*/; do [[ ! -e "$${dir}" ]] || CLUSTER_DIR="$${dir}" hack/cluster.sh down; done
	rm -rf bin dist .cluster sample-controller coverage.*

.PHONY: help
help: ## List the targets
	@echo 'Usage: make TARGET'
	@awk -F ':.*## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z].*:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile
