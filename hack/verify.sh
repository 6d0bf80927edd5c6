#!/usr/bin/env bash

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

# Runs one check, or CHECKS, which need no cluster: a failure does not stop the next ones. A check that exits with
# 75 could not be run here, for the reason that it says.
#
#   hack/verify.sh [CHECK [ARGS...]]

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"

CHECKS="boilerplate build codegen contract modules vulnerabilities"
CHECKS+=" helm release" # +drop:release
CHECKS+=" tutorial" # +drop:fork
OTHERS="lint"
OTHERS+=" forks" # +drop:fork
OTHERS+=" mutation" # +drop:mutation

# boilerplate fails if a source file does not start with the licence header of hack/boilerplate.go.txt, in the
# comment syntax of its language.
boilerplate() {
  local text file
  text=$(sed -e '/^\/\*$/d' -e '/^\*\/$/d' hack/boilerplate.go.txt)
  while IFS= read -r file; do
    # Without comment marks, shebang and build tags.
    [[ "$(head -n 24 "${file}" | sed -E -e '/^(#!|\/\/go:build|\/\*$|\*\/$)/d' -e 's/^(# |#$|\/\/ )//')" == *"${text}"* ]] ||
      complain "${file}: no licence header; copy it from hack/boilerplate.go.txt"
  done < <(sources .go && sources .sh && sources Makefile && sources Dockerfile)
}

# build fails unless two builds of the release binary, in directories of different names, give the
# same bytes, for that processor. By default it builds for the processor of this machine with
# the shared build cache, which takes seconds. Releases are built with the toolchain in go.mod.
#
#   FULL=1   for amd64 and arm64, the second time with an empty cache (minutes)
build() {
  local arch archs want have cache
  want=$(sed -n 's/^toolchain //p' go.mod) have=$(go env GOVERSION)
  [[ "${have}" == "${want}" ]] || say "NOTE: this is ${have}; others get the same bytes with GOTOOLCHAIN=${want}"
  archs=$(go env GOARCH) cache=$(go env GOCACHE)
  [[ -z "${FULL:-}" ]] || archs="amd64 arm64" cache="${WORK}/cache"
  mkdir -p "${WORK}/another/place"
  # Without .git.
  tar -cf - go.mod go.sum ./*.go pkg | tar -xf - -C "${WORK}/another/place"
  for arch in ${archs}; do
    GOOS=linux GOARCH="${arch}" compiling build_static "${WORK}/here"
    GOOS=linux GOARCH="${arch}" GOCACHE="${cache}" compiling build_static "${WORK}/there" "${WORK}/another/place"
    cmp "${WORK}/here" "${WORK}/there" ||
      die "a build for ${arch} in another directory has other bytes; look for paths in controller_ldflags (hack/lib.sh)"
    go version -m "${WORK}/here" | grep "GOARCH=${arch}$" >/dev/null || die "GOARCH=${arch} builds for another one"
  done
}

# codegen fails if hack/update-codegen.sh would change, add or delete a file. It works on a copy.
codegen() {
  local path copy="${WORK}/copy"
  mkdir "${copy}"
  tar -cf - go.mod go.sum ./*.go hack pkg artifacts test | tar -xf - -C "${copy}"
  CODEGEN_GOBIN="${BIN}/codegen" interruptible "${copy}/hack/update-codegen.sh" >"${WORK}/log" 2>&1 || die "$(<"${WORK}/log")"
  for path in pkg test artifacts docs/api.md; do
    diff -ru "${path}" "${copy}/${path}" ||
      die "generated files are out of date (above: - in the tree, + generated): run 'make generate' and commit"
  done
}

# contract fails if a rule of docs/contract.md, or of the contract of a controller below pkg/controller
# (docs/NAME.md for NAME), has no test that names it.
contract() {
  local tests others contract rule rules
  tests=$( (sources _test.go && sources .txtar) | xargs grep -hoE 'rule [A-Z]?[0-9]+: ')
  others=$(find pkg/controller/*/ -name controller.go | sed 's|.*/\(.*\)/controller.go|docs/\1.md|')
  for contract in docs/contract.md ${others}; do
    rules=$(sed -n '/^| rule |/,/^$/s/^| \([A-Z]\{0,1\}[0-9][0-9]*\) | .*/\1/p' "${contract}") || true
    [[ -n "${rules}" ]] || complain "${contract}: no rules found in its table"
    for rule in ${rules}; do
      [[ "${tests}" == *"rule ${rule}: "* ]] || complain "${contract}: no test says \"rule ${rule}: …\""
    done
  done
}

# lint checks the sources without running them: golangci-lint (.golangci.yml), which includes go vet and the format
# of all modules, the syntax of the shell scripts, and the workflows of GitHub. `make verify` leaves it out.
lint() {
  local silenced
  sources .sh | xargs -n 1 bash -n || complain "bash cannot parse a script"
  # The child signals the script twice, and ends while the second trap runs.
  [[ "$(POSIXLY_CORRECT=1 bash -c 'source hack/lib.sh; n=0; interruptible true && trap "((n++ == 0)) || { kill -s USR1 \$!; await \$! 9; }" TERM
    interruptible bash -c "trap \"exit 7\" USR1; for _ in 1 2; do sleep .5; kill -s TERM \$PPID; done; for _ in {1..60}; do sleep .5; done" || echo $?')" == 7 ]] ||
    complain "a script that goes on after two signals kills what it waits for, or loses its status"
  silenced=$(sources .go | grep -v '^./pkg/generated/' | xargs grep -ln '//''nolint' || true)
  [[ -z "${silenced}" ]] || complain "linters are silenced in: ${silenced}; fix the code instead"
  go -C test/bench/peer vet . || complain "go vet failed for test/bench/peer" # +drop:bench
  mkdir -p bin/tools
  go -C hack/tools build -o "${BIN}/tools/" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
  bin/tools/golangci-lint run --allow-parallel-runners --timeout 15m ./... || complain "golangci-lint failed"
  bin/tools/golangci-lint fmt --diff || complain "not formatted (diff above)"
  go -C hack/tools/workflows build -o "${BIN}/tools/" github.com/rhysd/actionlint/cmd/actionlint
  # Programs that it would run if they happened to be installed.
  bin/tools/actionlint -shellcheck= -pyflakes= .github/workflows/*.yaml || complain "actionlint failed"
  # Who moves a tag of an action changes what runs.
  ! grep uses: .github/workflows/*.yaml | grep -vE '@[0-9a-f]{40} # v[0-9]' || complain "actions (above) without commit and version; write NAME@COMMIT # vX.Y.Z"
  ! grep -E '^(permissions:.*|  [a-z-]+: *)write' .github/workflows/*.yaml || complain "all jobs of a workflow may write (above); give that to one job"
  [[ -z "$(grep -L '^permissions:' .github/workflows/*.yaml)" ]] || complain "these workflows have no permissions: at the top, and their jobs the defaults of the repository"
}

# used MODULE PACKAGE prints the versions of the modules that the package is built from.
used() {
  go -C "$1" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}' "$2" | sort -u
}

# modules fails if a go.mod or go.sum is not tidy, if the modules disagree on the version of Kubernetes, or if the
# root module depends on k8s.io/kubernetes or controller-runtime.
modules() {
  local all module library want got path ours theirs banned
  all=(. hack/tools hack/tools/reference hack/tools/workflows hack/cluster)
  all+=(hack/tools/helm hack/tools/release) # +drop:release
  all+=(hack/tools/mutation) # +drop:mutation
  all+=(test/bench/peer) # +drop:bench
  # k8s.io/kubernetes v1.X.Y goes with v0.X.Y of the libraries.
  want=$(go -C hack/cluster list -m -f '{{.Version}}' k8s.io/kubernetes | sed 's/^v1/v0/')
  for module in "${all[@]}"; do
    go -C "${module}" mod tidy -diff ||
      complain "${module}/go.mod is not tidy (diff above). Run 'go -C ${module} mod tidy'."
    for library in api apiextensions-apiserver apimachinery apiserver client-go code-generator component-base; do
      got=$(go -C "${module}" list -m -f '{{or .Replace .}}' "k8s.io/${library}" 2>/dev/null) || continue
      [[ "${got##* }" == "${want}" ]] ||
        complain "${module}/go.mod has k8s.io/${library} ${got##* }, the control plane is ${want}; use one version"
    done
  done
  # The controller and the control plane share compiled packages only where both have the same version.
  while read -r path ours theirs; do
    [[ "${ours}" == "${theirs}" ]] ||
      complain "go.mod has ${path} ${ours}, hack/cluster/go.mod ${theirs}: both builds would compile it. Run 'go get' with the newer one in the other."
  done < <(join <(used . .) <(used hack/cluster tool))
  for banned in k8s.io/kubernetes sigs.k8s.io/controller-runtime; do
    ! go list -m all | grep "^${banned} " >/dev/null || complain "the root module depends on ${banned}: see go mod why"
  done
}

# vulnerabilities fails if the program calls a function with a known vulnerability, of a module or of Go's
# standard library.
#
#   VULNDB   the database, default https://vuln.go.dev; a mirror of it, or file:///DIR
vulnerabilities() {
  local database="${VULNDB:-https://vuln.go.dev}" status=0 output
  output=$(go tool -modfile=hack/tools/go.mod govulncheck -db "${database}" . 2>&1) || status=$?
  case "${status} ${output}" in
    0\ *) say "no vulnerability in ${database} affects the program" ;;
    3\ *) die "known vulnerabilities; update the module or Go (go.mod), or remove the call:"$'\n'"${output}" ;;
    *"Get \"${database}/"*)
      say "NOT RUN: the database of vulnerabilities cannot be reached (${output##*Get }); give VULNDB=URL of a mirror"
      exit 75
      ;;
    *) die "govulncheck failed: ${output}" ;;
  esac
}

# +drop:release
# helm fails unless the Helm chart of hack/release is valid, and installs the same objects as
# install.yaml in artifacts/deploy, and as each other manifest that it is made from.
helm() {
  local program=sample-controller install=artifacts/deploy/install.yaml
  # Plugins and settings of the caller stay out.
  export HELM_CONFIG_HOME="${WORK}/config" HELM_CACHE_HOME="${WORK}/cache" HELM_DATA_HOME="${WORK}/data"
  CHART="${WORK}/${program}"
  mkdir -p bin/tools
  compiling build_helm "${BIN}/tools"
  GOJQ=$(go tool -modfile=hack/tools/go.mod -n gojq)
  interruptible write_chart "${CHART}"
  bin/tools/helm lint --quiet --strict "${CHART}"

  template --include-crds
  same "with its defaults" "${install}"
  template --set webhook.enabled=true # +drop:webhooks
  crds <artifacts/deploy/install-webhook.yaml >>"${WORK}/got" # +drop:webhooks
  same "with webhook.enabled" artifacts/deploy/install-webhook.yaml # +drop:webhooks

  template --include-crds --namespace other --set image=registry.example.com/other@sha256:0,replicas=3,resources.limits.memory=1Gi
  sed -e "s|${program}-system|other|" -e "s|image: ${program}:latest|image: registry.example.com/other@sha256:0|" \
    -e 's|replicas: 2$|replicas: 3|' -e 's|^            memory: 256Mi$|            memory: 1Gi|' "${install}" >"${WORK}/changed.yaml"
  ! cmp -s "${install}" "${WORK}/changed.yaml" || die "install.yaml has nothing to change"
  same "with other values" "${WORK}/changed.yaml"

  template --set global.any=1,resources.limits.cpu=1,policy.enabled=false
  ! grep --quiet ValidatingAdmissionPolicy "${WORK}/got" || die "the chart has policies without policy.enabled"
  refused replica=3 "'replica' not allowed"
  refused replicas=two "at '/replicas': got string, want integer"
  refused image.tag=v1 "at '/image': got object, want string"
  refused resources.limit.memory=1Gi "at '/resources': additional properties 'limit' not allowed"
  refused webhook.enable=true "at '/webhook': additional properties 'enable' not allowed" # +drop:webhooks
}

template() {
  bin/tools/helm template "${CHART##*/}" "${CHART}" --namespace "${CHART##*/}-system" "$@" >"${WORK}/got"
}

crds() {
  echo ---
  "${GOJQ}" --yaml-input --yaml-output 'select(.kind == "CustomResourceDefinition")'
}

# objects prints the objects on stdin, one a line, in the same order for the same objects. The
# namespace is Helm's to create.
objects() {
  "${GOJQ}" --yaml-input --slurp --compact-output \
    'map(select(. != null and .kind != "Namespace")) | sort_by([.kind, .metadata.namespace, .metadata.name])[]'
}

# same WHAT WANT fails unless what the chart installs are the objects in the file WANT.
same() {
  diff -u <(objects <"$2") <(objects <"${WORK}/got") ||
    die "the chart $1 has other objects than the manifests (above: - in the manifests, + in the chart); its values are in hack/release/chart/values.yaml"
}

# release fails unless two releases of the commit have the same bytes: the short form of make verify-release.
release() {
  interruptible hack/verify-release.sh
}

# refused VALUE WHY fails unless Helm refuses the value and says why.
refused() {
  ! template --set "$1" 2>"${WORK}/err" || die "helm accepts --set $1"
  grep --quiet --fixed-strings -- "$2" "${WORK}/err" || die "helm refuses --set $1, but not because \"$2\": $(<"${WORK}/err")"
}
# +drop:end

# +drop:fork
# A machine of CI may have no name for commits.
export GIT_{AUTHOR,COMMITTER}_NAME=check GIT_{AUTHOR,COMMITTER}_EMAIL=check@localhost CODEGEN_GOBIN="${BIN}/codegen"

# cleanup stops the clusters of forks.
cleanup() {
  local dir
  for dir in "${WORK:-/none}"/*/.cluster/*/; do
    [[ ! -e "${dir}" ]] || CLUSTER_DIR="${dir}" "${ROOT}/hack/cluster.sh" down
  done
}

# step TITLE CMD... says how long CMD took.
step() {
  local start
  start="${SECONDS}"
  interruptible "${@:2}" || die "$1 failed after $(since "${start}")"
  say "    $1 ($(since "${start}"))"
}

vet() {
  step vet go vet -tags "$(awk '/^  - / { print $2 }  /^linters:/ { exit }' .golangci.yml | paste -sd, -)" ./...
}

# verify_fork NAME=VALUE... makes a fork with these variables, compiles it and tests it.
verify_fork() {
  say "==> $*"
  rm -rf "${WORK}/fork"
  step fork env DIR="${WORK}/fork" MODULE=github.com/acme/widgets GROUP=widgets.acme.io VERSION=v1 KIND=Widget \
    "$@" "${WORK}/bin/fork"
  cd "${WORK}/fork"
  vet
  if [[ -n "${FULL:-}" ]]; then
    step generate make --no-print-directory generate
    [[ -z "$(git status --short | tee /dev/stderr)" ]] || die "generating again changed the fork"
    step lint hack/verify.sh lint
  fi
  step unit go test ./...
  cd "${ROOT}"
}

# tutorial runs the commands, patches and files of docs/tutorial.md from top to bottom, and compiles the forks that
# they make. With FULL=1 also the blocks that the page marks with "full": those with a cluster, and those that take
# long.
tutorial() {
  # The files of this tree, committed or not, are the repository that the tutorial clones.
  local repository="${WORK}/origin.git" commit dir
  commit=(git --git-dir="${repository}" --work-tree="${ROOT}")
  git init --quiet --bare --initial-branch=main "${repository}"
  "${commit[@]}" add --all
  "${commit[@]}" commit --quiet --message="As it is now"
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.${repository}.insteadOf"
  export GIT_CONFIG_VALUE_0="https://$(go list -m)"
  # The settings of a caller, such as make, concern this repository and its cluster.
  unset KUBECONFIG CLUSTER_NAME CLUSTER_DIR MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES
  export KUBECACHEDIR="${WORK}/.kubectl"
  interruptible go build -o "${WORK}/bin/tutorial" ./hack/tutorial
  interruptible env TUTORIAL_DIR="${WORK}" FULL="${FULL:-}" "${WORK}/bin/tutorial"
  for dir in "${WORK}"/*/; do
    [[ ! -e "${dir}go.mod" || -e "${dir}hack/fork" ]] || { cd "${dir}" && vet; }
  done
}

# forks [NAME=VALUE...] makes the fork with these variables of `make fork`, or one with everything dropped, one with
# nothing, and one for each kind with whose name code beside Foo might call something, and checks that they compile,
# with the tests of all build tags, and that the tests pass. With FULL=1 also that generating again changes nothing, and
# that linters find nothing.
forks() {
  interruptible go build -o "${WORK}/bin/fork" ./hack/fork
  if [[ $# -gt 0 ]]; then
    verify_fork "$@"
    return
  fi
  verify_fork DROP="$(find artifacts/examples -name '*-crd.yaml' | sed 's|.*/\(.*\)-crd.yaml|\1|' | tr '\n' ',')webhooks,rename,newkind,check,explore"
  verify_fork MODULE=github.com/acme/fork-check/v2 GROUP=my-checks.acme.io VERSION=v1beta1 KIND=Goose PLURAL=geese
  local kind
  for kind in Cluster Client Image Task Queue Policy HTTPRoute; do verify_fork KIND="${kind}" DROP=newkind; done
}
# +drop:end

# +drop:mutation
# mutation [FLAGS OF gremlins unleash...] tests the unit tests: changes one operator of the code after the other
# (gremlins, pinned in hack/tools/mutation/go.mod) and runs the tests of its package, which should fail. Fails if a
# mutant survived that is not in docs/mutation.md.
#
#   PKGS   which packages, default ". ./pkg/controller/..."
mutation() {
  local all dir
  # The same detectors as in `make unit`.
  export KUBE_CACHE_MUTATION_DETECTOR=true KUBE_PANIC_WATCH_DECODE_ERROR=true
  interruptible go -C hack/tools/mutation build -o "${WORK}/bin/" github.com/go-gremlins/gremlins/cmd/gremlins
  interruptible go -C hack/tools build -o "${WORK}/bin/" github.com/itchyny/gojq/cmd/gojq
  all=$(directories)
  # Without bin/ and .git/, which gremlins would copy as well.
  mkdir "${WORK}/src"
  : >"${WORK}/lived"
  tar -cf - --exclude=./bin --exclude=./.git --exclude=./dist --exclude=./.cluster . | tar -xf - -C "${WORK}/src"
  cd "${WORK}/src"
  for dir in ${all}; do
    say "==> ${dir}"
    mutate "${dir}" "$@"
  done
  cd "${ROOT}"
  survivors >"${WORK}/survivors"
  ! grep -vxFf <(grep '^- ' docs/mutation.md) "${WORK}/survivors" >&2 ||
    die "these mutants survived; write a test for each, or say in docs/mutation.md why none can be written"
}

# The root is the last.
directories() {
  # shellcheck disable=SC2086 # one pattern a word
  go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}/{{end}}' ${PKGS:-. ./pkg/controller/...} |
    sed -n "s|^${ROOT}/|./|p" | sort -r
}

# mutate DIR [FLAGS...] runs gremlins on the files of that package alone.
mutate() {
  # Off by default in gremlins, and just as easy to get wrong as the others.
  local operators=(--invert-{assignments,bitwise,logical,loopctrl} --remove-self-assignments)
  # gremlins measures the coverage of everything below DIR, and takes ten times the time of that
  # for the timeout of a mutant, which also holds for compiling. Below the root only its own tests count.
  [[ "$1" != ./ ]] || find . -mindepth 2 -name '*_test.go' -exec rm -f {} +
  # A test result from the cache would make the timeout too short. The random tests and
  # the explorations take too long, and the detectors allocate.
  GOFLAGS="${GOFLAGS} -count=1 -vet=off -skip=^Test(Random|Explore|Bytes|Allocations)" interruptible \
    "${WORK}/bin/gremlins" unleash "$1" --timeout-coefficient=10 --exclude-files / --output-statuses lt \
    --output "${WORK}/report.json" "${operators[@]}" "${@:2}"
  # gremlins names files relative to DIR.
  [[ ! -e "${WORK}/report.json" ]] || "${WORK}/bin/gojq" --raw-output --arg dir "${1#./}" \
    '.files[]? | .file_name as $f | .mutations[] | select(.status == "LIVED") | "\($dir + $f) \(.line) \(.type)"' \
    "${WORK}/report.json" >>"${WORK}/lived"
  rm -f "${WORK}/report.json"
}

# survivors prints them as docs/mutation.md lists them: by their code, because the numbers
# of lines change with every edit.
survivors() {
  local file line type
  while read -r file line type; do
    echo "- ${file}, ${type}: \`$(sed -n "${line}{s/^[[:space:]]*//;p;}" "${file}")\`"
  done <"${WORK}/lived" | sort
}

# +drop:end

if [[ $# -gt 0 ]]; then
  [[ " ${CHECKS} ${OTHERS} " == *" $1 "* ]] || die "there is no check $1: there are ${CHECKS} ${OTHERS}"
  make_work "$1"
  "$@"
  exit "${FAILED}"
fi
cleanup_on_exit
for check in ${CHECKS}; do
  begun="${SECONDS}" status=0
  interruptible hack/verify.sh "${check}" || status=$?
  case "${status}" in
    0) echo "ok   ${check} ($(since "${begun}"))" ;;
    75) echo "NOT RUN ${check} ($(since "${begun}"))" ;;
    *)
      echo "FAIL ${check} ($(since "${begun}"))"
      FAILED+=" ${check}"
      ;;
  esac
done
[[ "${FAILED}" == 0 ]] || die "failed:${FAILED#0}"
