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

# Prints an in-toto statement with a SLSA provenance of the files that sha256sum lists on stdin. It has
# neither times nor names of machines, so that everyone who makes the release gets the same one.

{
  _type: "https://in-toto.io/Statement/v1",
  subject: [inputs | split("  ") | {name: .[1], digest: {sha256: .[0]}}],
  predicateType: "https://slsa.dev/provenance/v1",
  predicate: {
    buildDefinition: {
      buildType: "https://\($module)/release/v1",
      externalParameters: {version: $version, image: $image, platforms: $platforms | split(" ")},
      internalParameters: {go: $go},
      resolvedDependencies: [
        {name: "source", digest: {gitCommit: $commit}} + if $source == "" then {} else {uri: "git+\($source)"} end,
        {name: "go", uri: "pkg:golang/std@\($go)"}
      ]
    },
    runDetails: {builder: {id: "https://\($module)/hack/release.sh"}}
  }
}
