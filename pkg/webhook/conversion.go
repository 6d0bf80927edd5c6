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
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"example.com/sample-controller/pkg/apis/samplecontroller/conversion"
)

// converter answers ConversionReviews.
type converter struct {
	metrics *Metrics
}

// convert answers a ConversionReview. If one object cannot be converted the response is a
// failure without any object: the API server accepts only complete responses.
func (c converter) convert(ctx context.Context, body []byte) (any, error) {
	var review apiextensionsv1.ConversionReview
	if err := decode(body, &review); err != nil {
		return nil, err
	}
	if want := apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview"); review.GroupVersionKind() != want || review.Request == nil {
		return nil, noRequest(want)
	}
	request := review.Request
	review.Request = nil
	objects, err := convertAll(ctx, request)
	c.metrics.converted(len(request.Objects), err == nil)
	result := metav1.Status{Status: metav1.StatusSuccess}
	if err != nil {
		result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: request.UID, Result: result, ConvertedObjects: objects}
	return &review, nil
}

// convertAll returns the converted objects in the order of the request.
func convertAll(ctx context.Context, request *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
	converted := make([]runtime.RawExtension, 0, len(request.Objects))
	for i, object := range request.Objects {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("converted %d of %d objects: %w", i, len(request.Objects), err)
		}
		text, err := conversion.Convert(object.Raw, request.DesiredAPIVersion)
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		converted = append(converted, runtime.RawExtension{Raw: text})
	}
	return converted, nil
}
