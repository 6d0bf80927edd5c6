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

# Prints the configuration of the image that the Dockerfile describes, with labels.
#   $layer        what sha256sum prints of its only layer, not compressed
#   positional    the labels, such as created=2026-01-02T03:04:05Z

[$ARGS.positional[] | capture("^(?<key>[a-z]+)=(?<value>.*)$")] | from_entries as $labels | {
  created: $labels.created, os: "linux", $architecture,
  config: {
    User: "65532:65532", Entrypoint: ["/\($program)"], WorkingDir: "/",
    Labels: $labels | with_entries(.key |= "org.opencontainers.image.\(.)")
  },
  rootfs: {type: "layers", diff_ids: ["sha256:\($layer[:64])"]},
  history: [{created: $labels.created, comment: "the program and licence texts"}]
}
