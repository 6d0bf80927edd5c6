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

# Writes a release of the commit that is checked out: binaries, an image, manifests, a Helm chart, lists
# of what is in them (SBOMs), their provenance and checksums. The same commit gives the same bytes on every machine.
# docs/release.md describes the files.
#
#   VERSION     the version, such as v1.2.3 or v1.2.3-rc.1
#   DIR         where to write it, default dist/VERSION
#   IMAGE       the image that the manifests name, without a tag,
#               default registry.example.com/sample-controller
#   PLATFORMS   of the binaries, default "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64"; the
#               image is for those with linux

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROGRAM=sample-controller
VERSION="${VERSION:-}"
IMAGE="${IMAGE:-registry.example.com/${PROGRAM}}"
PLATFORMS="${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}"
DIR="${DIR:-${ROOT}/dist/${VERSION}}"
# The image that the manifests of the repository name.
PLACEHOLDER="image: sample-controller:latest"

# Everything is made in TMP, beside DIR. SOURCES are those of the commit, OUT becomes DIR.
TMP=""
SOURCES=""
OUT=""
COMMIT=""
COMMIT_TIME=""
# The path of the Go module.
MODULE=""

cleanup() {
  [[ -z "${TMP}" ]] || rm -rf "${TMP}"
  # It has something in it after a success.
  [[ -z "${TMP}" ]] || rmdir "${ROOT}/dist" 2>/dev/null || true
}

# --- What is refused --------------------------------------------------------

check_version() {
  local number='(0|[1-9][0-9]*)' word='(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)'
  local form="^v${number}\.${number}\.${number}(-${word}(\.${word})*)?$"
  [[ -n "${VERSION}" ]] || die "VERSION is not set; run make release VERSION=v0.1.0"
  # Build metadata (+) cannot be in the tag of an image.
  [[ "${VERSION}" =~ ${form} ]] ||
    die "VERSION: '${VERSION}' is not a semantic version with a v, without build metadata; give one such as v0.1.0 or v0.1.0-rc.1"
}

check_image() {
  local form='^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*$'
  [[ "${IMAGE}" =~ ${form} && ! "${IMAGE}" =~ ^[^/]*:[0-9]+$ ]] ||
    die "IMAGE: '${IMAGE}' is not the name of an image without a tag; give one such as registry.example.com/${PROGRAM}"
}

check_platforms() {
  local platform
  for platform in ${PLATFORMS}; do
    [[ "${platform}" =~ ^(linux|darwin)/(amd64|arm64)$ ]] ||
      die "PLATFORMS: '${platform}' is not linux or darwin with /amd64 or /arm64; give a list with spaces"
  done
  [[ " ${PLATFORMS}" == *" linux/"* ]] || die "PLATFORMS: '${PLATFORMS}' has none with linux, which the image is for; add linux/amd64"
}

check_tree() {
  local changes
  COMMIT=$(git -C "${ROOT}" rev-parse --verify --quiet 'HEAD^{commit}') ||
    die "${ROOT} is not a git repository with a commit; a release is made from a commit, in a clone"
  changes=$(git -C "${ROOT}" status --porcelain --untracked-files=normal)
  [[ -z "${changes}" ]] ||
    die "the working tree is dirty, and a release is what a commit has; commit, stash or remove these changes:"$'\n'"${changes}"
  COMMIT_TIME=$(git -C "${ROOT}" log -1 --format=%cI)
}

check_tag() {
  local tagged
  tagged=$(git -C "${ROOT}" rev-parse --verify --quiet "refs/tags/${VERSION}^{commit}") || return 0
  [[ "${tagged}" == "${COMMIT}" ]] ||
    die "VERSION: the tag ${VERSION} is at commit ${tagged}, and ${COMMIT} is checked out; run git checkout ${VERSION}, or give another version"
}

check_dir() {
  [[ ! -L "${DIR}" ]] || die "DIR: ${DIR} is a link, which the release would replace; give its target"
  [[ ! -e "${DIR}" || -d "${DIR}" ]] || die "DIR: ${DIR} is a file; remove it or give another directory"
  [[ -z "$(ls -A "${DIR}" 2>/dev/null)" ]] || die "DIR: ${DIR} is not empty; remove it or give another directory"
}

# --- What is made -----------------------------------------------------------

# pin_builds makes builds independent of the caller's settings: with another toolchain, or
# other flags, they have other bytes.
pin_builds() {
  local toolchain
  umask 022
  export LC_ALL=C GOFLAGS=-trimpath GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off RELEASE_VERSION="${VERSION}"
  toolchain=$(sed -n 's/^toolchain //p' "${SOURCES}/go.mod")
  [[ -z "${toolchain}" ]] || export GOTOOLCHAIN="${toolchain}"
  [[ -z "$(go env GOEXPERIMENT)" ]] || die "GOEXPERIMENT is set, with which the binaries have other bytes; unset it (go env -u GOEXPERIMENT)"
}

build_tools() {
  go -C "${SOURCES}/hack/release" build -o "${TMP}/release" .
  go -C "${SOURCES}" build -o "${TMP}/static" ./hack/static
  go -C "${SOURCES}" tool -modfile=hack/tools/release/go.mod -n cyclonedx-gomod >"${TMP}/cyclonedx-gomod"
  go -C "${SOURCES}" tool -modfile=hack/tools/go.mod -n gojq >"${TMP}/gojq"
}

# name_of PLATFORM prints how its files begin.
name_of() {
  echo "${PROGRAM}_${VERSION}_${1%/*}_${1#*/}"
}

build_binary() { # platform
  local stage
  stage="${TMP}/$(name_of "$1")"
  mkdir "${stage}"
  GOOS="${1%/*}" GOARCH="${1#*/}" build_static "${stage}/${PROGRAM}" "${SOURCES}"
}

# describe_binary PLATFORM adds the licence texts, packs it and writes its SBOM.
describe_binary() {
  local name stage
  name=$(name_of "$1")
  stage="${TMP}/${name}"
  # A program that needs a library does not start in the image, which has none.
  [[ "$1" != linux/* ]] || "${TMP}/static" "${stage}/${PROGRAM}" "${1#*/}"
  cp "${SOURCES}/LICENSE" "${stage}/LICENSE"
  "${TMP}/release" licenses -binary "${stage}/${PROGRAM}" -dir "${SOURCES}" -out "${stage}/licenses"
  "${TMP}/release" pack -time "${COMMIT_TIME}" -dir "${stage}" -out "${OUT}/${name}.tar.gz"
  GOPROXY=off "$(<"${TMP}/cyclonedx-gomod")" bin -json -noserial -notimestamp -std -version "${VERSION}" \
    -output "${TMP}/${name}.json" "${stage}/${PROGRAM}" 2>"${TMP}/${name}.log" || die "cyclonedx-gomod: $(<"${TMP}/${name}.log")"
  # The hashes of the tool depend on the machine that it was built on.
  "$(<"${TMP}/gojq")" 'del(.metadata.tools[].hashes)' "${TMP}/${name}.json" >"${OUT}/${name}.cdx.json"
}

# known_source prints where the sources are, if the path of the module says that. A remote of
# git would be another one in every clone.
known_source() {
  case "${MODULE}" in
    github.com/*/* | gitlab.com/*/* | codeberg.org/*/*) echo "https://${MODULE}" | sed -E 's|/v[0-9]+$||' ;;
  esac
}

build_image() {
  local platform images=()
  for platform in ${PLATFORMS}; do
    [[ "${platform}" != linux/* ]] || images+=("${platform}=${TMP}/$(name_of "${platform}")")
  done
  "${TMP}/release" image -program "${PROGRAM}" -version "${VERSION}" -revision "${COMMIT}" -source "$(known_source)" \
    -time "${COMMIT_TIME}" -out "${TMP}/image" "${images[@]}"
  "${TMP}/release" pack -time "${COMMIT_TIME}" -dir "${TMP}/image" -out "${OUT}/${PROGRAM}_${VERSION}_image.tar"
}

# write_manifest NAME copies a manifest of artifacts/deploy, with the image of this release.
write_manifest() {
  grep -q "${PLACEHOLDER}$" "${SOURCES}/artifacts/deploy/$1" || die "artifacts/deploy/$1 does not say '${PLACEHOLDER}'"
  sed -e "s|${PLACEHOLDER}$|image: ${IMAGE}:${VERSION}|" "${SOURCES}/artifacts/deploy/$1" >"${OUT}/$1"
}

# write_crds FILE MANIFEST writes the CRDs of a manifest, below its licence.
write_crds() {
  {
    sed -e '/^---$/,$d' "${SOURCES}/artifacts/examples/crd.yaml"
    echo ---
    "$(<"${TMP}/gojq")" --yaml-input --yaml-output 'select(.kind == "CustomResourceDefinition")' "${OUT}/$2"
  } >"${OUT}/$1"
}

write_manifests() {
  write_manifest install.yaml
  write_crds crds.yaml install.yaml
  # +drop:webhooks
  write_manifest install-webhook.yaml
  write_crds crds-webhook.yaml install-webhook.yaml
  # +drop:end
}

# write_chart makes the Helm chart from the manifests, which name the image.
write_chart() {
  local manifests=("${OUT}/install.yaml")
  # +drop:webhooks
  manifests+=("webhook=${OUT}/install-webhook.yaml")
  # +drop:end
  mkdir "${TMP}/chart"
  "${TMP}/release" chart -program "${PROGRAM}" -version "${VERSION}" -out "${TMP}/chart/${PROGRAM}" "${manifests[@]}"
  cp "${SOURCES}/LICENSE" "${TMP}/chart/${PROGRAM}/LICENSE"
  # Helm's own name for it, which has no v.
  "${TMP}/release" pack -time "${COMMIT_TIME}" -dir "${TMP}/chart/${PROGRAM}" -out "${OUT}/${PROGRAM}-${VERSION#v}.tgz"
}

# write_provenance lists all files that are there, so only the checksums come after it.
write_provenance() {
  "${TMP}/release" provenance -module "${MODULE}" -version "${VERSION}" -image "${IMAGE}" -platforms "${PLATFORMS}" \
    -revision "${COMMIT}" -source "$(known_source)" -go "$(go -C "${SOURCES}" env GOVERSION)" \
    -dir "${OUT}" -out "${TMP}/provenance.json"
  mv "${TMP}/provenance.json" "${OUT}/provenance.json"
}

write_checksums() {
  local sum=(sha256sum)
  # macOS has this one.
  command -v sha256sum >/dev/null || sum=(shasum -a 256)
  (cd "${OUT}" && "${sum[@]}" -- * >../SHA256SUMS && mv ../SHA256SUMS SHA256SUMS)
}

main() {
  local begun platform
  begun=$(now)
  check_version
  check_image
  check_platforms
  check_tree
  check_tag
  check_dir
  cleanup_on_exit
  mkdir -p "$(dirname "${DIR}")"
  TMP=$(mktemp -d "$(cd "$(dirname "${DIR}")" && pwd -P)/.release.XXXXXX")
  SOURCES="${TMP}/sources" OUT="${TMP}/out"
  mkdir "${SOURCES}" "${OUT}"
  # The caller's settings could make other ends of lines.
  git -C "${ROOT}" -c core.autocrlf=false -c core.eol=lf archive --format=tar "${COMMIT}" | tar -xf - -C "${SOURCES}"
  pin_builds
  MODULE=$(go -C "${SOURCES}" list -m)
  compiling build_tools
  for platform in ${PLATFORMS}; do
    say "Building for ${platform}"
    compiling build_binary "${platform}"
    interruptible describe_binary "${platform}"
  done
  say "Building the image"
  interruptible build_image
  write_manifests
  write_chart
  write_provenance
  write_checksums
  # An empty directory would get this one into it.
  [[ ! -e "${DIR}" ]] || rmdir "${DIR}"
  mv "${OUT}" "${DIR}"
  say "Wrote ${DIR} ($(since "${begun}"))"
}

main "$@"
