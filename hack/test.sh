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

set -o errexit -o nounset -o pipefail

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LOGS="${BIN}/test"
# Two steps with a cluster never run at the same time: each would find the machine busier than a
# user's is. Of each lane: what waits, and what runs since when in which process.
WAITING=("e2e" "verify lint unit")
WAITING[0]+=" check" # +drop:check
WAITING[0]+=" compare" # +drop:compare
WAITING[0]+=" failover" # +drop:failover
RUNNING=("" "")
PIDS=("" "")
STARTS=("" "")
PASSED=""

# run_step LANE STEP is an own process. The steps that compute leave the processors to the one with a
# cluster: its API server ends requests after a minute.
run_step() {
  [[ "$1" == 1 ]] || CHECK=part FAILOVER=part COMPARE_REQUESTS=10000 TMPDIR="${WORK%/*}" exec "${ROOT}/hack/e2e.sh" "$2"
  exec nice -n 15 make --no-print-directory -C "${ROOT}" "$2"
}

start_step() {
  local step="${WAITING[$1]%% *}"
  WAITING[$1]="${WAITING[$1]#"${step}"}"
  WAITING[$1]="${WAITING[$1]# }"
  say "==> ${step} started"
  spawn run_step "$1" "${step}" </dev/null >"${LOGS}/${step}.log" 2>&1
  RUNNING[$1]="${step}" PIDS[$1]="${SPAWNED}" STARTS[$1]="${SECONDS}"
}

# cleanup ends the steps that run and waits until their clusters are gone.
cleanup() {
  local lane
  for lane in 0 1; do
    [[ -n "${RUNNING[lane]}" ]] || continue
    say "==> ${RUNNING[lane]} stopped after $(since "${STARTS[lane]}")"
    stop "-${PIDS[lane]}" 180
    RUNNING[lane]=""
  done
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

end_step() {
  local step="${RUNNING[$1]}" log took status=0
  log="${LOGS}/${step}.log"
  took=$(since "${STARTS[$1]}")
  RUNNING[$1]=""
  wait "${PIDS[$1]}" || status=$?
  [[ "${status}" == 0 ]] || cleanup
  say "==> ${step}"
  print_closing "${log}"
  if [[ "${status}" != 0 ]]; then
    print_failed "${log}"
    die "${step} failed after ${took}; its whole output is in ${log#"${ROOT}/"}"
  fi
  PASSED+=", ${step} ${took}"
  say "==> ${step} passed (${took}); its whole output is in ${log#"${ROOT}/"}"
}

make_work test
mkdir -p "${LOGS}"
BEGUN="${SECONDS}"
SAID="${SECONDS}"
until [[ -z "${WAITING[0]}${WAITING[1]}${RUNNING[0]}${RUNNING[1]}" ]]; do
  for lane in 0 1; do
    [[ -z "${RUNNING[lane]}" ]] || running "${PIDS[lane]}" || end_step "${lane}"
    [[ -n "${RUNNING[lane]}" || -z "${WAITING[lane]}" ]] || start_step "${lane}"
  done
  sleep 0.2
  if ((SECONDS >= SAID + 60)); then
    say "    still running: ${RUNNING[*]}"
    SAID="${SECONDS}"
  fi
done
say "All passed in $(since "${BEGUN}"): ${PASSED#, }"
