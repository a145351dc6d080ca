// Package manifesttest reads YAML files with Kubernetes objects in tests.
package manifesttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	yaml "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Documents returns the documents of a YAML file, without empty ones.
func Documents(text []byte) (all []map[string]any, err error) {
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var fields map[string]any
		if err := documents.Decode(&fields); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if fields != nil {
			all = append(all, fields)
		}
	}
}

// Objects returns the objects of a YAML file, with numbers as in JSON.
func Objects(t testing.TB, text []byte) (all []*unstructured.Unstructured) {
	t.Helper()
	documents, err := Documents(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, fields := range documents {
		o := &unstructured.Unstructured{}
		expect.Must(t, o.UnmarshalJSON(expect.ToJSON(t, fields)))
		all = append(all, o)
	}
	return all
}

// As returns an object as its Go type. An unknown field is an error, and so is one in the wrong case.
func As[T any](object any) (typed T, err error) {
	document, err := json.Marshal(object)
	if err != nil {
		return typed, err
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(document); err != nil {
		return typed, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true)
	return typed, err
}

// Typed is [As]. It ends the test at an error.
func Typed[T any](t testing.TB, object any) T {
	t.Helper()
	typed, err := As[T](object)
	if err != nil {
		t.Fatalf("%v in %s", err, expect.ToJSON(t, object))
	}
	return typed
}

// KnativeService has the used fields of a Knative Service, whose types are in a module that only test/tools/kinds needs.
type KnativeService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Template struct {
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				corev1.PodSpec       `json:",inline"`
				ContainerConcurrency int64 `json:"containerConcurrency"`
				TimeoutSeconds       int64 `json:"timeoutSeconds"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}
