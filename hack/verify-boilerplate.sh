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

# Fails if a source file does not start with the licence header of
# hack/boilerplate.go.txt, in the comment syntax of its language.

set -o errexit
set -o nounset
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

TEXT=$(sed -e '/^\/\*$/d' -e '/^\*\/$/d' hack/boilerplate.go.txt)
# header_of prints the first lines of a file without comment marks, shebang and build tags.
header_of() {
  head -n 24 "$1" | sed -e '/^#!/d' -e '/^\/\/go:build/d' -e '/^\/\*$/d' -e '/^\*\/$/d' -e 's/^# //' -e 's/^#$//' -e 's/^\/\/ //'
}

failed=0
while IFS= read -r file; do
  case "$(header_of "${file}")" in
    *"${TEXT}"*) ;;
    *)
      echo "${file}: no licence header; copy it from hack/boilerplate.go.txt" >&2
      failed=1
      ;;
  esac
done < <(find . \( -path ./bin -o -path ./dist -o -path ./.git -o -path ./.cluster \) -prune -o \
  -type f \( -name '*.go' -o -name '*.sh' -o -name Makefile -o -name Dockerfile \) -print)
exit "${failed}"
