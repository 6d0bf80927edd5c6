/*
Copyright The sample-controller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Command models-schema prints the generated OpenAPI definitions as one
// OpenAPI v2 document. applyconfiguration-gen embeds what it needs of it, which
// is how the fake clientset learns to merge and to track managed fields.
//
// It runs only from hack/update-codegen.sh, which generates the definitions and compiles them in.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// definitions is set by the file that hack/update-codegen.sh adds to the build.
var definitions common.GetOpenAPIDefinitions

func main() {
	models := spec.Definitions{}
	reference := func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + modelName(name)) }
	for name, definition := range definitions(reference) {
		models[modelName(name)] = definition.Schema
		// A type with different forms (IntOrString, for one) has its OpenAPI v2 form beside its v3 form.
		if v2, ok := definition.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
			models[modelName(name)] = v2
		}
	}
	document := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "sample-controller", Version: "unversioned"}},
		Definitions: models,
	}}
	if err := json.NewEncoder(os.Stdout).Encode(document); err != nil {
		fmt.Fprintf(os.Stderr, "models-schema: %v\n", err)
		os.Exit(1)
	}
}

// modelName returns the name under which applyconfiguration-gen looks up a type of the package example.com/…:
// com.example.…. The types of apimachinery have such names already.
func modelName(name string) string {
	if !strings.Contains(name, "/") {
		return name
	}
	return util.ToRESTFriendlyName(name)
}
