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

# Makes the layers of the images that the Pods of a real node run, without a registry: from packages
# of Debian, which it keeps in bin/node, from the controller of this tree, and from a former one.
#
#   hack/node/images.sh DIR FORMER     writes NAME.tar for each image; FORMER is a binary

set -o errexit -o nounset -o pipefail

# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

OUT="${1:?}"
FORMER="${2:?}"
PACKAGES="${BIN}/node"
CHILD_IS_GO=yes

cleanup() {
  rm -rf "${OUT}/root"
}

# file_of PACKAGE prints the file of that package, "" if it has not been downloaded. Newer releases of Debian
# and Ubuntu have some libraries under a name that ends in t64.
file_of() {
  local file
  for file in "${PACKAGES}/$1"_*.deb "${PACKAGES}/${1}t64"_*.deb; do
    [[ ! -e "${file}" ]] || { echo "${file}" && return; }
  done
}

download() {
  interruptible env -C "${PACKAGES}" apt-get --quiet=2 --option=APT::Sandbox::User=root download "$1"
}

# unpack PACKAGE... unpacks packages, of which busybox-static is one, into an empty root.
unpack() {
  local package program
  rm -rf "${OUT}/root"
  mkdir -p "${OUT}"/root/{etc,tmp,run,dev,proc,sys,bin,var/log,var/tmp}
  chmod 1777 "${OUT}/root/tmp"
  for package in "$@"; do
    [[ -n "$(file_of "${package}")" ]] || download "${package}" || download "${package}t64" ||
      die "cannot download the package ${package}: run apt-get update"
    dpkg --extract "$(file_of "${package}")" "${OUT}/root"
  done
  for program in sh echo sleep cat true false wget nc ls id env head tail dd date; do
    ln -s busybox "${OUT}/root/bin/${program}"
  done
  rm -rf "${OUT}"/root/usr/share/{doc,man,locale,lintian,info} "${OUT}"/root/usr/lib/*/gconv
  printf '%s\n' root:x:0:0:root:/:/bin/sh nginx:x:101:101::/:/bin/sh memcache:x:11211:11211::/:/bin/sh >"${OUT}/root/etc/passwd"
  printf '%s\n' root:x:0: nginx:x:101: memcache:x:11211: >"${OUT}/root/etc/group"
}

# pack NAME writes the layer.
pack() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "${OUT}/root" -cf "${OUT}/$1.tar" .
}

main() {
  cleanup_on_exit
  mkdir -p "${OUT}" "${PACKAGES}"

  unpack busybox-static nginx nginx-common libc6 libcrypt1 libpcre2-8-0 libssl3 zlib1g
  rm -rf "${OUT}"/root/etc/nginx/{sites-*,modules-enabled}
  mkdir -p "${OUT}"/root/var/{lib,log}/nginx
  cat >"${OUT}/root/etc/nginx/nginx.conf" <<'NGINX'
user nginx nginx;
worker_processes 1;
error_log /dev/stderr notice;
pid /run/nginx.pid;
events { worker_connections 512; }
http {
  include /etc/nginx/mime.types;
  access_log /dev/stdout;
  server { listen 80; root /usr/share/nginx/html; }
}
NGINX
  pack nginx

  # +drop:memcached
  unpack busybox-static memcached libc6 libevent-2.1-7 libsasl2-2 libssl3
  pack memcached

  # +drop:end
  unpack busybox-static
  pack busybox

  rm -rf "${OUT}/root"
  mkdir -p "${OUT}/root"
  cp "${FORMER}" "${OUT}/root/sample-controller"
  pack former
  build_static "${OUT}/root/sample-controller"
  pack sample-controller
}

main "$@"
