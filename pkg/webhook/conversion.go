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

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/conversion"
)

// conversionRequest is an apiextensionsv1.ConversionRequest whose objects are not decoded yet: a list of
// numbers would take a hundred times its size as decoded objects (TestReviewsTakeLittleMemory).
type conversionRequest struct {
	UID               types.UID       `json:"uid"`
	DesiredAPIVersion string          `json:"desiredAPIVersion"`
	Objects           json.RawMessage `json:"objects"`
}

// convert answers a ConversionReview. If one object cannot be converted the response is a
// failure without any object: the API server accepts only complete responses.
func (s *server) convert(ctx context.Context, body []byte) (any, error) {
	request, kind, err := decode[conversionRequest](body, apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview"))
	if err != nil {
		return nil, err
	}
	objects, err := convertAll(ctx, request.Objects, request.DesiredAPIVersion)
	result := "success"
	response := &apiextensionsv1.ConversionResponse{
		UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}, ConvertedObjects: objects,
	}
	if err != nil {
		result = "failure"
		response.Result, response.ConvertedObjects = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}, nil
	}
	s.Metrics.conversions.WithLabelValues(result).Add(float64(len(objects)))
	return &apiextensionsv1.ConversionReview{TypeMeta: kind, Response: response}, nil
}

// convertAll converts a JSON list of Foos one after the other. It returns those of before and the one
// that failed with an error.
func convertAll(ctx context.Context, list []byte, apiVersion string) ([]runtime.RawExtension, error) {
	converted := []runtime.RawExtension{}
	if len(list) == 0 {
		return converted, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(list))
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return converted, errors.New("objects: not a list")
	}
	for i := 0; decoder.More(); i++ {
		converted = append(converted, runtime.RawExtension{})
		if err := ctx.Err(); err != nil {
			return converted, fmt.Errorf("converted %d objects: %w", i, err)
		}
		var object json.RawMessage
		if err := decoder.Decode(&object); err != nil {
			return converted, fmt.Errorf("objects[%d]: %w", i, err)
		}
		var err error
		if converted[i].Raw, err = conversion.Convert(object, apiVersion); err != nil {
			return converted, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	return converted, nil
}
