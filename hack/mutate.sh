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

# Tests the unit tests: changes one operator of the code after the other (gremlins,
# pinned in hack/tools/mutation/go.mod) and runs the tests of its package, which should fail.
# Prints a table and the mutants that survived, and fails if one of them is not in
# docs/mutation.md.
#
#   hack/mutate.sh [FLAGS OF gremlins unleash...]     such as --dry-run
#
#   PKGS   which packages, default ". ./pkg/controller/..."

# shellcheck disable=SC2034,SC2317 # lib.sh uses the variables and calls cleanup

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "${ROOT}"

KNOWN=docs/mutation.md
# Off by default in gremlins, and just as easy to get wrong as the others.
OPERATORS=(--invert-assignments --invert-bitwise --invert-logical --invert-loopctrl --remove-self-assignments)
WORK=""

# The same detectors as in `make unit`.
export KUBE_CACHE_MUTATION_DETECTOR=true KUBE_PANIC_WATCH_DECODE_ERROR=true

cleanup() {
  [[ -z "${WORK}" ]] || rm -rf "${WORK}"
}

# directories prints the packages with tests, relative to the module, the root last.
directories() {
  # shellcheck disable=SC2086 # one pattern a word
  go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ${PKGS:-. ./pkg/controller/...} |
    while read -r dir; do
      [[ "${dir}" == "${ROOT}" ]] && echo . || echo "${dir#"${ROOT}/"}"
    done | sort -r
}

# mutate DIR [FLAGS...] runs gremlins on the files of that package alone.
mutate() {
  local dir="$1"
  shift
  # gremlins measures the coverage of everything below DIR, and takes the time of that
  # for the timeout of a mutant. Below the root only its own tests count.
  [[ "${dir}" != . ]] || find "${WORK}/src" -mindepth 2 -name '*_test.go' -exec rm -f {} +
  # A test result from the cache would make the timeout too short. The random tests take too
  # long, and the detectors allocate.
  GOFLAGS="${GOFLAGS} -count=1 -vet=off -skip=^Test(Random|Bytes|Allocations)" interruptible \
    "${WORK}/gremlins" unleash "./${dir}" --exclude-files / --output-statuses lt \
    --output "${WORK}/report.json" "${OPERATORS[@]}" "$@"
  # gremlins names files relative to DIR.
  [[ ! -e "${WORK}/report.json" ]] || "${WORK}/gojq" --arg dir "${dir#.}" '
    .files[]?.file_name |= ($dir + "/" + . | ltrimstr("/"))' "${WORK}/report.json" >"${WORK}/reports/${dir//\//-}.json"
  rm -f "${WORK}/report.json"
}

# query FILTER runs gojq on the reports of all packages.
query() {
  "${WORK}/gojq" --raw-output --slurp "$1" "${WORK}"/reports/*
}

table() {
  echo
  echo "| file | mutants | killed | survived | not covered | timed out |"
  echo "|---|---|---|---|---|---|"
  query '
    def count($status): map(select(.status == $status)) | length;
    def line($name): "| \($name) | \(length) | \(count("KILLED")) | \(count("LIVED")) | \(count("NOT COVERED")) | \(count("TIMED OUT")) |";
    [.[].files[]] | sort_by(.file_name) | (.[] | .file_name as $name | .mutations | line($name)),
    (map(.mutations[]) | line("all"))'
}

# survivors prints them as they are listed in KNOWN: by their code, because the numbers
# of lines change with every edit.
survivors() {
  local file line type
  query '.[].files[] | .file_name as $f | .mutations[] | select(.status == "LIVED") | "\($f) \(.line) \(.type)"' |
    while read -r file line type; do
      echo "- ${file}, ${type}: \`$(sed -n "${line}{s/^[[:space:]]*//;p;}" "${file}")\`"
    done | sort
}

main() {
  local dir survivor unknown=0
  cleanup_on_exit
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/sample-controller-mutate.XXXXXX")
  # A test that is killed leaves its temporary files behind.
  export TMPDIR="${WORK}/tmp"
  mkdir -p "${WORK}"/{src,reports,tmp}
  CHILD_IS_GO=yes
  interruptible go -C hack/tools/mutation build -o "${WORK}/" github.com/go-gremlins/gremlins/cmd/gremlins
  interruptible go -C hack/tools build -o "${WORK}/" github.com/itchyny/gojq/cmd/gojq
  # Without bin/ and .git/, which gremlins would copy as well.
  git ls-files --cached --others --exclude-standard | while read -r file; do [[ ! -e "${file}" ]] || echo "${file}"; done |
    tar -cf - -T - | tar -xf - -C "${WORK}/src"
  cd "${WORK}/src"
  for dir in $(cd "${ROOT}" && directories); do
    say "==> ${dir}"
    mutate "${dir}" "$@"
  done
  cd "${ROOT}"
  [[ " $* " != *" --dry-run "* ]] || return 0
  table
  echo
  while read -r survivor; do
    grep -qxF -- "${survivor}" "${KNOWN}" && continue
    say "Survived, and not in ${KNOWN}: ${survivor}"
    unknown=$((unknown + 1))
  done < <(survivors)
  ((unknown == 0)) || die "${unknown} mutants survived. Write a test for each, or say in ${KNOWN} why none can be written."
}

main "$@"
