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

# Makes a release from two clones in directories of different names, and fails unless all files have the
# same bytes and are what docs/release.md says, or if bad input is accepted.
#
#   FULL=1   for all platforms, the second time with an empty build cache, from which the first could not
#            hide a difference (minutes); otherwise for linux on the processor of this machine

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROGRAM=sample-controller
# It needs no tag, and is none of a release.
VERSION=v0.0.0-verify

# release CLONE NAME=VALUE... makes a release in a new clone of that name.
release() {
  git clone --quiet --no-hardlinks "${ROOT}" "$1"
  git -C "$1" checkout --quiet --detach "${COMMIT}"
  interruptible env -u DIR -u IMAGE VERSION="${VERSION}" "${@:2}" "$1/hack/release.sh" 2>"${WORK}/log" || die "$(<"${WORK}/log")"
}

# has TEXT FILE... fails unless one of the files, or of those in a directory, has the text.
has() {
  grep -qrF -- "$1" "${@:2}" || die "'$1' is not in ${*:2}"
}

sum_of() {
  sha256sum "$1" | cut -c 1-64
}

# check_archive NAME checks the program, the licence texts and the SBOM of a platform.
check_archive() {
  local program="${WORK}/$1/${PROGRAM}" module version
  tar -xzf "$1.tar.gz" -C "${WORK}"
  has "$(sum_of "${program}")" "$1.cdx.json"
  cmp "${WORK}/$1/LICENSE" "${ROOT}/LICENSE"
  while read -r module version; do
    has "\"pkg:golang/${module}@${version}" "$1.cdx.json"
    [[ -n "$(ls "${WORK}/$1/licenses/${module/#std/go}")" ]] || die "the archive has no licence text of ${module}"
  done < <(echo "std go" && go version -m "${program}" | awk '$1 == "dep" { print $2, $3 }')
  go version -m "${program}" | grep "GOARCH=${1##*_}$" >/dev/null || die "the program is for another processor"
  [[ "$1" != *"_$(go env GOOS)_$(go env GOARCH)" || "$("${program}" --version)" == *" ${VERSION} (commit ${COMMIT},"* ]] || die "the program has another version"
}

# check_image checks that its layers have what the archives have, and that their configurations name them.
check_image() {
  local blob layer="${WORK}/layer"
  mkdir "${WORK}/image" "${layer}"
  tar -xf "${PROGRAM}_${VERSION}_image.tar" -C "${WORK}/image"
  has '"User": "65532:65532"' "${WORK}/image"
  has "\"/${PROGRAM}\"" "${WORK}/image"
  for blob in "${WORK}"/image/blobs/sha256/*; do
    [[ "$(sum_of "${blob}")" == "${blob##*/}" ]] || die "a blob of the image has another sum"
    gzip -dc <"${blob}" >"${layer}.tar" 2>/dev/null || continue
    has "sha256:$(sum_of "${layer}.tar")" "${WORK}/image"
    tar -xf "${layer}.tar" -C "${layer}" LICENSE licenses/go/LICENSE "${PROGRAM}"
    has "$(sum_of "${layer}/${PROGRAM}")" "${PROGRAM}"_*_linux_*.cdx.json
  done
}

# check_manifests checks that all containers have the image of the layout, by its digest.
check_manifests() {
  local file image
  tar -xzf "${PROGRAM}-${VERSION#v}.tgz" -C "${WORK}"
  image=$(grep -lF '"mediaType":"application/vnd.oci.image.index.v1+json"' "${WORK}"/image/blobs/sha256/*)
  image="registry.example.com/${PROGRAM}:${VERSION}@sha256:$(sum_of "${image}")"
  for file in install*.yaml "${WORK}/${PROGRAM}/values.yaml"; do
    [[ "$(sed -n 's/^[- ]*image: //p' "${file}" | sort -u)" == "${image}" ]] || die "${file} names another image than ${image}"
  done
}

# check_files checks the release in the working directory.
check_files() {
  local file
  sha256sum --check --quiet --strict SHA256SUMS
  for file in [!S]*; do
    has "$(sum_of "${file}")  ${file}" SHA256SUMS
    [[ "${file}" == provenance.json ]] || has "$(sum_of "${file}")" provenance.json
    [[ "${file}" != *.tar.gz ]] || check_archive "${file%.tar.gz}"
  done
  check_image
  has "\"gitCommit\": \"${COMMIT}\"" provenance.json
  check_manifests
  echo >>install.yaml
  ! sha256sum --check --status SHA256SUMS || die "the sums do not show a changed file"
}

# refused WHY NAME=VALUE... fails unless the clone in the working directory refuses that, for this reason.
refused() {
  ! env -u DIR -u IMAGE -u PLATFORMS VERSION=v0.1.0 "${@:2}" hack/release.sh 2>"${WORK}/log" || die "${*:2} is accepted"
  has "$1" "${WORK}/log"
}

check_refusals() {
  local value git=(git -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false)
  refused "run make release VERSION=" VERSION=
  for value in 0.1.0 v0.1 v0.01.0 v0.1.0+linux v0.1.0/../../x; do refused "VERSION: '${value}' is not a semantic version with a v" VERSION="${value}"; done
  for value in registry.example.com/a:v1 a:1 a/b@sha256:00 'a|e'; do refused "IMAGE: '${value}' is not the name of an image without a tag" IMAGE="${value}"; done
  refused "PLATFORMS: 'linux/riscv64' has another platform than" PLATFORMS=linux/riscv64
  refused "add linux/amd64" PLATFORMS=darwin/arm64
  for value in hack Makefile; do refused "DIR: ${value} is a file, a link or not empty" DIR="${value}"; done
  "${git[@]}" tag v0.1.0 "$("${git[@]}" commit-tree -m other 'HEAD^{tree}')"
  refused "VERSION: the tag v0.1.0 is at commit"
  cp -R "$(go list -m -f '{{.Dir}}' k8s.io/klog/v2)" unlicensed
  chmod -R u+w unlicensed && rm unlicensed/LICENSE
  refused "?? unlicensed/"
  go mod edit -replace=k8s.io/klog/v2=./unlicensed
  "${git[@]}" add --all && "${git[@]}" commit --quiet --message=test
  refused "module k8s.io/klog/v2, which ${PROGRAM} links, has no licence text" VERSION=v0.2.0
  rm -rf .git
  refused "is not a git repository with a commit"
}

main() {
  local here there only
  COMMIT=$(git -C "${ROOT}" rev-parse --verify --quiet HEAD) || { say "A release is made from a commit, and there is none." && exit 75; }
  [[ -z "$(git -C "${ROOT}" status --porcelain)" ]] || say "NOTE: this is about commit ${COMMIT}; changes in the working tree are not in it"
  make_work verify-release
  here="${WORK}/clone" there="${WORK}/another/place/of-the-same-commit" only="PLATFORMS=linux/$(go env GOARCH)"
  [[ -z "${FULL:-}" ]] || only="PLATFORMS="
  release "${here}" "${only}"
  umask 077
  release "${there}" "${only}" TZ=Asia/Tokyo ${FULL:+"GOCACHE=${WORK}/cache"}
  diff -r "${here}/dist/${VERSION}" "${there}/dist/${VERSION}" ||
    die "these files differ between two releases of commit ${COMMIT}; look for paths, times and the order of files in what writes them"
  cd "${there}/dist/${VERSION}"
  cat SHA256SUMS
  check_files
  cd "${here}" && rm -r dist
  check_refusals
  say "Two releases of ${COMMIT} have the same bytes."
}

main "$@"
