// Command stages writes the kwok stages that a test cluster plays, as one YAML
// stream, to standard output.
//
// The stages are the ones that kwok publishes, in the version that this module
// pins: a node becomes Ready at once and keeps its lease; a pod becomes Running
// and Ready at once, succeeds when a Job owns it, and is gone as soon as it is
// deleted, whatever its grace period. What we add is that an object on hold keeps
// its status.
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

// holdAnnotation is cluster.HoldAnnotation, which this module cannot import.
const holdAnnotation = "test.rehome.dev/hold"

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
		stage, err := holdable(text)
		if err != nil {
			return err
		}
		if _, err := fmt.Printf("---\n%s", stage); err != nil {
			return err
		}
	}
	return nil
}

// holdable adds to a stage that objects on hold are none of its business, unless
// it is the one that removes what is being deleted.
func holdable(text string) ([]byte, error) {
	var stage v1alpha1.Stage
	if err := yaml.UnmarshalStrict([]byte(text), &stage); err != nil {
		return nil, fmt.Errorf("decode a stage: %w", err)
	}
	if !stage.Spec.Next.Delete {
		stage.Spec.Selector.MatchExpressions = append(stage.Spec.Selector.MatchExpressions, v1alpha1.MatchExpression{
			JQ: &v1alpha1.SelectorJQ{
				Key:      fmt.Sprintf(".metadata.annotations[%q]", holdAnnotation),
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
