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

# Writes a release of the commit that is checked out: docs/release.md.

set -o errexit -o nounset -o pipefail

# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROGRAM=sample-controller
VERSION="${VERSION:-}"
IMAGE="${IMAGE:-registry.example.com/${PROGRAM}}"
PLATFORMS="${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}"
DIR="${DIR:-${ROOT}/dist/${VERSION}}"
# Everything is made in TMP, beside DIR.
TMP=""

cleanup() {
  # dist has something in it after a success.
  [[ -z "${TMP}" ]] || { rm -rf "${TMP}" && rmdir "${ROOT}/dist" 2>/dev/null; } || true
}

check() {
  local number='(0|[1-9][0-9]*)' word='(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)' changes tagged platforms='^( +(linux|darwin)/(amd64|arm64))+ *$'
  local version="^v${number}\.${number}\.${number}(-${word}(\.${word})*)?$" image='^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*$'
  [[ -n "${VERSION}" ]] || die "VERSION is not set; run make release VERSION=v0.1.0"
  # Build metadata (+) cannot be in the tag of an image.
  [[ "${VERSION}" =~ ${version} ]] || die "VERSION: '${VERSION}' is not a semantic version with a v, without build metadata; give one such as v0.1.0 or v0.1.0-rc.1"
  [[ "${IMAGE}" =~ ${image} && ! "${IMAGE}" =~ ^[^/]*:[0-9]+$ ]] || die "IMAGE: '${IMAGE}' is not the name of an image without a tag; give one such as registry.example.com/${PROGRAM}"
  [[ " ${PLATFORMS}" =~ ${platforms} ]] || die "PLATFORMS: '${PLATFORMS}' has another platform than linux or darwin with /amd64 or /arm64; give a list with spaces"
  [[ " ${PLATFORMS}" == *" linux/"* ]] || die "PLATFORMS: '${PLATFORMS}' has none with linux, which the image is for; add linux/amd64"
  COMMIT=$(git -C "${ROOT}" rev-parse --verify --quiet 'HEAD^{commit}') || die "${ROOT} is not a git repository with a commit; a release is made from a commit, in a clone"
  changes=$(git -C "${ROOT}" status --porcelain --untracked-files=normal)
  [[ -z "${changes}" ]] || die "the working tree is dirty, and a release is what a commit has; commit, stash or remove these changes:"$'\n'"${changes}"
  tagged=$(git -C "${ROOT}" rev-parse --verify --quiet "refs/tags/${VERSION}^{commit}") || tagged="${COMMIT}"
  [[ "${tagged}" == "${COMMIT}" ]] || die "VERSION: the tag ${VERSION} is at commit ${tagged}, and ${COMMIT} is checked out; run git checkout ${VERSION}, or give another version"
  [[ ! -L "${DIR}" && (! -e "${DIR}" || -d "${DIR}") && -z "$(ls -A "${DIR}" 2>/dev/null)" ]] || die "DIR: ${DIR} is a file, a link or not empty; remove it or give another directory"
  # Other programs of these names, such as those of macOS and busybox, write other bytes.
  TAR=$(command -v gtar || command -v tar)
  [[ "$("${TAR}" --version) $(gzip --version)" == *"GNU tar"*"gzip "*"Free Software Foundation"* && -n "$(command -v sha256sum)" ]] ||
    die "a release takes GNU tar and gzip, and sha256sum; install them (macOS: brew install gnu-tar gzip coreutils)"
}

# prepare unpacks the sources of the commit, and makes the bytes independent of the caller's settings.
prepare() {
  mkdir -p "$(dirname "${DIR}")"
  TMP=$(mktemp -d "$(cd "$(dirname "${DIR}")" && pwd -P)/.release.XXXXXX")
  SOURCES="${TMP}/sources" OUT="${TMP}/out"
  umask 022
  mkdir "${SOURCES}" "${OUT}"
  git -C "${ROOT}" -c core.autocrlf=false -c core.eol=lf archive --format=tar "${COMMIT}" | tar -xf - -C "${SOURCES}"
  SOURCE_DATE_EPOCH=$(git -C "${ROOT}" log -1 --format=%ct)
  GOTOOLCHAIN=$(sed -n 's/^toolchain //p' "${SOURCES}/go.mod")
  export SOURCE_DATE_EPOCH GOTOOLCHAIN="${GOTOOLCHAIN:-auto}" RELEASE_VERSION="${VERSION}"
  export LC_ALL=C GOFLAGS=-trimpath GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off PATH="${TMP}/bin:${PATH}"
  unset TAR_OPTIONS GZIP
  [[ -z "$(go env GOEXPERIMENT)" ]] || die "GOEXPERIMENT is set, with which the binaries have other bytes; unset it (go env -u GOEXPERIMENT)"
  MODULE=$(go -C "${SOURCES}" list -m)
  # Where the sources are, if the path of the module says that: a remote of git would be another one in every clone.
  SOURCE=$(sed -nE 's|/v[0-9]+$||; /^(github\.com|gitlab\.com|codeberg\.org)\/[^/]+\//s|^|https://|p' <<<"${MODULE}")
}

build_tools() {
  go -C "${SOURCES}/hack/tools" build -o "${TMP}/bin/" github.com/itchyny/gojq/cmd/gojq
  go -C "${SOURCES}/hack/tools/release" build -o "${TMP}/bin/" tool
  build_helm "${TMP}/bin"
}

# pack DIR NAME... prints a tar archive of these files.
pack() {
  "${TAR}" --create --format=ustar --sort=name --mtime="@${SOURCE_DATE_EPOCH}" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --directory="$@"
}

# copy_licenses DIR copies the licence texts of Go and of all modules that the program links, and those of copied code.
copy_licenses() {
  local module root depth files names='/(([a-z0-9]+-)?(un)?licen[cs]e|copying|copyright|notice|patents)([._-][^/]*)?$'
  { echo "go $(go env GOROOT)" && go -C "${SOURCES}" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' .; } | sort -u | while read -r module root; do
    depth=99
    [[ "${module}" != go ]] || depth=1
    files=$(cd "${root}" && find . -maxdepth "${depth}" -type f | grep -Ei "${names}" | grep -Ev '\.(go|s|c|h)$') || true
    grep -qEi '^\./([a-z0-9-]*licen[cs]e|copying)' <<<"${files}" || die "module ${module}, which ${PROGRAM} links, has no licence text (LICENSE*, COPYING*) in ${root}"
    mkdir -p "$1/licenses/${module}"
    "${TAR}" -C "${root}" -cf - -T - <<<"${files}" | "${TAR}" -C "$1/licenses/${module}" -xf -
  done
}

# build DIR makes the archive and the SBOM of a platform.
build() {
  copy_licenses "$1"
  build_static "$1/${PROGRAM}" "${SOURCES}"
  cp "${SOURCES}/LICENSE" "$1/"
  pack "${TMP}" "${1##*/}" | gzip -9n >"${OUT}/${1##*/}.tar.gz"
  # The hashes of the tool depend on the machine that it was built on.
  GOPROXY=off cyclonedx-gomod bin -json -noserial -notimestamp -std -version "${VERSION}" "$1/${PROGRAM}" | gojq 'del(.metadata.tools[].hashes)' >"${OUT}/${1##*/}.cdx.json"
}

# build_image writes an OCI layout with one index, of images with the files of each archive for linux.
build_image() {
  local dir platforms=() labels annotations
  labels=("created=$(TZ=UTC git -C "${ROOT}" log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)" licenses=Apache-2.0
    "revision=${COMMIT}" "title=${PROGRAM}" "version=${VERSION}" ${SOURCE:+"source=${SOURCE}"})
  annotations=("${labels[@]/#/--annotation=org.opencontainers.image.}")
  for dir in "${TMP}/${PROGRAM}"_*_linux_*; do
    cd "${dir}"
    pack . LICENSE licenses "${PROGRAM}" >layer.tar
    gojq --null-input --from-file "${SOURCES}/hack/release/image.jq" --arg architecture "${dir##*_}" --arg program "${PROGRAM}" \
      --arg layer "$(sha256sum layer.tar)" --args "${labels[@]}" >config.json
    gzip -9n layer.tar
    oras push --oci-layout "../layout:${dir##*_}" --config config.json:application/vnd.oci.image.config.v1+json "${annotations[@]}" layer.tar.gz:application/vnd.oci.image.layer.v1.tar+gzip
    platforms+=("${dir##*_}")
  done
  cd "${TMP}"
  oras manifest index create --oci-layout "layout:${VERSION}" "${platforms[@]}" "${annotations[@]}"
  gojq '.manifests |= map(select(.mediaType | contains("index")))' layout/index.json >index.json && mv index.json layout/
  pack layout blobs index.json oci-layout >"${OUT}/${PROGRAM}_${VERSION}_image.tar"
}

# write_manifests writes the manifests and the chart, with the image of this release by its digest: who moves the tag
# in the registry changes nothing.
write_manifests() {
  local file image placeholder="image: sample-controller:latest"
  image="${IMAGE}:${VERSION}@$(gojq --raw-output '.manifests[].digest' "${TMP}/layout/index.json")"
  cd "${SOURCES}"
  for file in artifacts/deploy/install*.yaml; do
    grep -q "${placeholder}$" "${file}" || die "${file} does not say '${placeholder}'"
    sed -e "s|${placeholder}$|image: ${image}|" "${file}" >"${OUT}/${file##*/}"
    { sed -e '/^---$/,$d' artifacts/examples/crd.yaml && echo --- && gojq --yaml-input --yaml-output 'select(.kind == "CustomResourceDefinition")' "${file}"; } >"${OUT}/crds${file##*/install}"
  done
  write_chart "${TMP}/chart" "${SOURCES}" "${image}"
  helm package "${TMP}/chart" --version="${VERSION#v}" --app-version="${VERSION}" --destination="${OUT}"
}

# write_provenance describes all files that are there, and lists all with their checksums.
write_provenance() {
  cd "${OUT}"
  sha256sum -- * | gojq --raw-input --null-input --from-file "${SOURCES}/hack/release/provenance.jq" --arg module "${MODULE}" --arg version "${VERSION}" \
    --arg image "${IMAGE}" --arg platforms "${PLATFORMS}" --arg commit "${COMMIT}" --arg source "${SOURCE}" --arg go "$(go -C "${SOURCES}" env GOVERSION)" >../provenance.json && mv ../provenance.json .
  sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .
}

main() {
  local platform step begun
  begun="${SECONDS}"
  check
  cleanup_on_exit
  prepare
  compiling build_tools
  for platform in ${PLATFORMS}; do
    say "Building for ${platform}"
    export GOOS="${platform%/*}" GOARCH="${platform#*/}"
    compiling build "${TMP}/${PROGRAM}_${VERSION}_${GOOS}_${GOARCH}"
  done
  unset GOOS GOARCH
  for step in build_image write_manifests write_provenance; do
    interruptible "${step}" >&2
  done
  # An empty directory would get this one into it.
  [[ ! -e "${DIR}" ]] || rmdir "${DIR}"
  mv "${OUT}" "${DIR}"
  say "Wrote ${DIR} ($(since "${begun}"))"
}

main "$@"
