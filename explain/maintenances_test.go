package explain_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

func TestBlocks(t *testing.T) {
	budget := v1alpha1.BlockedPod{Namespace: "shop", Name: "db-0", Reason: "DisruptionBudget", By: "poddisruptionbudget/shop/db"}
	protected := v1alpha1.BlockedPod{Namespace: "shop", Name: "db-0", Reason: "Protected", Message: "a rule"}
	sibling := v1alpha1.BlockedPod{Namespace: "shop", Name: "db-1", Reason: "Protected"}
	node := func(name string, blocked ...v1alpha1.BlockedPod) []v1alpha1.NodeStatus {
		return []v1alpha1.NodeStatus{{Name: name, Stage: v1alpha1.Draining, Blocked: blocked}}
	}
	kernel := func(nodes []v1alpha1.NodeStatus) schemas.Maintenance {
		return schemas.Maintenance{Name: "kernel", UID: "k", Nodes: nodes}
	}
	forgotten, whole, dry, disks := kernel(nil), kernel(nil), kernel(node("n1", budget)), kernel(node("n1", protected))
	forgotten.Forgotten, whole.Whole, dry.DryRun = []string{"n1"}, true, true
	disks.Name, disks.UID = "disks", "d"
	block := func(maintenance string, b v1alpha1.BlockedPod, second int) explain.Block {
		return explain.Block{Maintenance: maintenance, Node: "n1", BlockedPod: b, Said: at(second)}
	}
	ofDryRun := block("kernel", budget, 0)
	ofDryRun.DryRun = true
	for _, test := range []struct {
		name string
		told []schemas.Maintenance // one per second
		want []explain.Block
	}{
		{"no event", nil, nil},
		{"another pod cannot move", []schemas.Maintenance{kernel(node("n1", sibling))}, nil},
		{"a pod of that name on another node", []schemas.Maintenance{kernel(node("n2", budget))}, nil},
		{"blocked", []schemas.Maintenance{kernel(node("n1", sibling, budget))}, []explain.Block{block("kernel", budget, 0)}},
		{"blocked in a dry run", []schemas.Maintenance{dry}, []explain.Block{ofDryRun}},
		{"another reason since", []schemas.Maintenance{kernel(node("n1", budget)), kernel(node("n1", protected))},
			[]explain.Block{block("kernel", protected, 1)}},
		{"later event about other nodes", []schemas.Maintenance{kernel(node("n1", budget)), kernel(node("n2"))},
			[]explain.Block{block("kernel", budget, 0)}},
		{"free since", []schemas.Maintenance{kernel(node("n1", budget)), kernel(node("n1", sibling))}, nil},
		{"node no longer in the plan", []schemas.Maintenance{kernel(node("n1", budget)), forgotten}, nil},
		{"node missing in the whole plan", []schemas.Maintenance{kernel(node("n1", budget)), whole}, nil},
		{"two maintenances", []schemas.Maintenance{kernel(node("n1", budget)), disks},
			[]explain.Block{block("disks", protected, 1), block("kernel", budget, 0)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			for i, m := range test.told {
				w.publish(w.event(fmt.Sprint("m", i), i, m, "chain", ""))
			}
			read := func(ctx context.Context, channels []string, since time.Time, handle func(schemas.Event) error) error {
				return w.bus.Events(ctx, bus.Query{Channels: channels, Since: since}, handle)
			}
			got, err := explain.Blocks(t.Context(), read, explain.Query{Namespace: "shop", Name: "db-0", Node: "n1"})
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, test.want)
			}
		})
	}
}
