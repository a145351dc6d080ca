// Command stages writes the kwok stages of a test cluster, as one YAML stream, to standard output.
package main

import (
	"fmt"
	"os"

	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"
)

// The annotations of package cluster, which this module cannot import.
const (
	holdAnnotation       = "test.rehome.dev/hold"
	readyAfterAnnotation = "test.rehome.dev/ready-after"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "stages:", err)
		os.Exit(1)
	}
}

// write prints all stages.
func write() error {
	for _, text := range []string{
		nodefast.DefaultNodeInit,
		heartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
		podfast.DefaultPodDelete,
	} {
		stage, err := annotated(text)
		if err != nil {
			return err
		}
		if _, err := fmt.Printf("---\n%s", stage); err != nil {
			return err
		}
	}
	return nil
}

// annotated makes a stage skip objects on hold, unless it removes deleted objects, and delays Ready of pods by their annotation.
func annotated(text string) ([]byte, error) {
	var stage v1alpha1.Stage
	if err := yaml.UnmarshalStrict([]byte(text), &stage); err != nil {
		return nil, fmt.Errorf("decode a stage: %w", err)
	}
	if text == podfast.DefaultPodReady {
		stage.Spec.Delay = &v1alpha1.StageDelay{
			DurationMilliseconds: new(int64(0)),
			DurationFrom: &v1alpha1.ExpressionFrom{
				JQ: &v1alpha1.ExpressionJQ{Expression: annotation(readyAfterAnnotation)},
			},
		}
	}
	if !stage.Spec.Next.Delete {
		stage.Spec.Selector.MatchExpressions = append(stage.Spec.Selector.MatchExpressions, v1alpha1.MatchExpression{
			JQ: &v1alpha1.SelectorJQ{
				Key:      annotation(holdAnnotation),
				Operator: v1alpha1.SelectorOpDoesNotExist,
			},
		})
	}
	encoded, err := yaml.Marshal(stage)
	if err != nil {
		return nil, fmt.Errorf("encode stage %s: %w", stage.Name, err)
	}
	return encoded, nil
}

// annotation returns the jq path of an annotation.
func annotation(key string) string { return fmt.Sprintf(".metadata.annotations[%q]", key) }
