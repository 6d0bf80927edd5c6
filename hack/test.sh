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

# Runs all that must pass, two steps at the same time: one with a cluster, which mostly waits for
# it, and one that computes. When a step has ended, prints its closing lines and the file that has
# its whole output. The first one that fails stops the others, and is printed last, with what the
# tests that failed have printed.
#
#   hack/test.sh [STEP...]     default all, see STEPS
#
#   TEST_JOBS   how many steps at the same time, default 2

# shellcheck disable=SC2034,SC2317 # lib.sh calls cleanup

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Those with a cluster first, which take the longest together.
STEPS=(e2e faults failover verify lint unit)
WORK=""
LOGS="${BIN}/test"
# The steps that run, and of the same index the process and the start of each.
RUNNING=()
PIDS=()
STARTS=()
PASSED=""

run_step() {
  # The steps that compute leave the processors to the step with a cluster: its API server
  # ends requests after a minute.
  case "$1" in
    verify) TMPDIR="${WORK}/tmp" exec nice -n 15 "${ROOT}/hack/verify-all.sh" ;;
    lint | unit) TMPDIR="${WORK}/tmp" exec nice -n 15 "${ROOT}/hack/$1.sh" ;;
    e2e) exec "${ROOT}/hack/e2e.sh" ;;
    faults | failover) FAULTS=part exec "${ROOT}/hack/$1.sh" ;;
    *) die "no step $1: there are ${STEPS[*]}" ;;
  esac
}

start_step() {
  say "==> $1 started"
  spawn run_step "$1" </dev/null >"${LOGS}/$1.log" 2>&1
  RUNNING+=("$1")
  PIDS+=("${SPAWNED}")
  STARTS+=("$(now)")
}

has_cluster() {
  [[ "$1" == e2e || "$1" == faults || "$1" == failover ]]
}

# may_start STEP is true if fewer than TEST_JOBS steps run. Two steps with a cluster never run at the
# same time: each would find the machine busier than a user's is.
may_start() {
  local other
  for other in ${RUNNING[@]+"${RUNNING[@]}"}; do
    ! has_cluster "$1" || ! has_cluster "${other}" || return 1
  done
  [[ ${#RUNNING[@]} -lt "${TEST_JOBS:-2}" ]]
}

# remove_step INDEX takes the step from the lists of what runs.
remove_step() {
  local i names=("${RUNNING[@]}") pids=("${PIDS[@]}") starts=("${STARTS[@]}")
  RUNNING=() PIDS=() STARTS=()
  for ((i = 0; i < ${#names[@]}; i++)); do
    [[ "${i}" == "$1" ]] || { RUNNING+=("${names[i]}") && PIDS+=("${pids[i]}") && STARTS+=("${starts[i]}"); }
  done
}

# stop_steps ends the steps that run and waits until their clusters are gone.
stop_steps() {
  local i target
  for ((i = 0; i < ${#PIDS[@]}; i++)); do
    say "==> ${RUNNING[i]} stopped after $(since "${STARTS[i]}")"
    # Otherwise bash reports that it was terminated.
    disown "${PIDS[i]}" 2>/dev/null || true
    # Scripts with a cluster stop what they started, in the right order.
    target="-${PIDS[i]}"
    ! has_cluster "${RUNNING[i]}" || target="${PIDS[i]}"
    kill -s TERM -- "${target}" 2>/dev/null || true
  done
  for ((i = 0; i < ${#PIDS[@]}; i++)); do
    await "${PIDS[i]}" 180 || true
    kill -s KILL -- "-${PIDS[i]}" 2>/dev/null || true
  done
  RUNNING=() PIDS=() STARTS=()
}

# print_closing LOG prints what a reader of a green run wants: neither what single tests print, nor
# logs of programs.
print_closing() {
  grep -Ev '^([[:space:]]|=== |--- |PASS$|$|[IWEF][0-9]{4} )' "$1" || true
}

# print_failed LOG prints the lines of each failed test. They are far apart in the output of
# `go test -v` when tests run in parallel. If no test has failed, it prints the end of the log.
print_failed() {
  awk '
    /^ *=== (RUN|CONT|NAME|PAUSE) / { name = $3; next }
    /^ *--- (FAIL|PASS|SKIP): / { name = $3 }
    /^ *--- FAIL: / { failed[++n] = name }
    /^(ok|FAIL|PASS|exit status)/ { name = "" }
    name != "" && !/^ *--- PASS: / { said[name] = said[name] "\n" $0 }
    END { for (i = 1; i <= n; i++) print "FAILED: " failed[i] said[failed[i]]; exit n == 0 }
  ' "$1" || tail -n 200 "$1"
}

# end_step INDEX prints the closing lines of the step, and fails if the step did.
end_step() {
  local i="$1" name="${RUNNING[$1]}" took status=0
  took=$(since "${STARTS[i]}")
  wait "${PIDS[i]}" || status=$?
  remove_step "${i}"
  [[ "${status}" == 0 ]] || stop_steps
  say "==> ${name}"
  print_closing "${LOGS}/${name}.log"
  if [[ "${status}" != 0 ]]; then
    print_failed "${LOGS}/${name}.log"
    die "${name} failed after ${took}; its whole output is in ${LOGS#"${ROOT}/"}/${name}.log"
  fi
  PASSED+=", ${name} ${took}"
  say "==> ${name} passed (${took}); its whole output is in ${LOGS#"${ROOT}/"}/${name}.log"
}

say_progress() {
  local i line=""
  for ((i = 0; i < ${#RUNNING[@]}; i++)); do
    line+=", ${RUNNING[i]} ($(since "${STARTS[i]}"))"
  done
  say "    still running: ${line#, }"
}

cleanup() {
  stop_steps
  [[ -z "${WORK}" ]] || rm -rf "${WORK}"
}

main() {
  local start i said
  [[ $# -gt 0 ]] || set -- "${STEPS[@]}"
  start=$(now) said="$(now)"
  cleanup_on_exit
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/sample-controller-test.XXXXXX")
  mkdir -p "${WORK}/tmp" "${LOGS}"
  while [[ $# -gt 0 || ${#RUNNING[@]} -gt 0 ]]; do
    local waiting=() step
    for step in "$@"; do
      if may_start "${step}"; then
        start_step "${step}"
      else
        waiting+=("${step}")
      fi
    done
    set -- ${waiting[@]+"${waiting[@]}"}
    sleep 0.2
    for ((i = 0; i < ${#PIDS[@]}; i++)); do
      running "${PIDS[i]}" || { end_step "${i}" && break; }
    done
    if (($(now) - said >= 60000)) && [[ ${#RUNNING[@]} -gt 0 ]]; then
      say_progress
      said=$(now)
    fi
  done
  say "All passed in $(since "${start}"): ${PASSED#, }"
}

main "$@"
