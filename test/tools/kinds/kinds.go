// Package kinds has what other projects publish of their kinds that the manifests use. It reads objects of the Prometheus
// operator strictly, as its Go types: a field that a type does not have is an error. Of Knative Serving, KEDA, and cert-manager it pins
// the versions whose CustomResourceDefinitions the API servers of test/deploy and test/chart validate objects with.
//
// It is a module of its own, so that none of their dependencies is one of Rehome's.
package kinds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager" // keeps the module, which has the definition
	_ "github.com/kedacore/keda/v2/version"                       // keeps the module, which has the definitions
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	yaml "go.yaml.in/yaml/v3"
	_ "knative.dev/serving/config/core/300-resources" // keeps the module, which has the definition
)

// typeOf makes an empty object of a kind. nil means it is not one of the kinds that are known here.
func typeOf(apiVersion, kind string) any {
	switch apiVersion + " " + kind {
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return new(monitoring.ServiceMonitor)
	case "monitoring.coreos.com/v1 PodMonitor":
		return new(monitoring.PodMonitor)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return new(monitoring.PrometheusRule)
	}
	return nil
}

// Check reads YAML documents and returns the number of objects of each known kind, by "apiVersion kind". It ignores other kinds.
// The error lists each invalid object by kind and name.
func Check(text []byte) (found map[string]int, err error) {
	found = map[string]int{}
	var wrong []error
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var fields map[string]any
		if err := documents.Decode(&fields); errors.Is(err, io.EOF) {
			return found, errors.Join(wrong...)
		} else if err != nil {
			return found, errors.Join(append(wrong, err)...)
		}
		apiVersion, kind := fmt.Sprint(fields["apiVersion"]), fmt.Sprint(fields["kind"])
		object := typeOf(apiVersion, kind)
		if object == nil {
			continue
		}
		found[apiVersion+" "+kind]++
		if err := strictly(fields, object); err != nil {
			metadata, _ := fields["metadata"].(map[string]any)
			wrong = append(wrong, fmt.Errorf("%s %v: %w", kind, metadata["name"], err))
		}
	}
}

func strictly(fields map[string]any, object any) error {
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(object)
}
