package crds

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// column is a column of kubectl get. Columns with a priority need -o wide.
type column struct {
	Name, Type string
	Priority   int32
}

// table sends the request of kubectl get, and removes the age from each row.
func table(t *testing.T, path string) (columns []column, rows [][]any) {
	t.Helper()
	text, err := shared.Cluster(t).Client().Discovery().RESTClient().Get().AbsPath("/apis/"+v1alpha1.GroupVersion().String()+path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	expect.Must(t, err)
	got := expect.FromJSON[metav1.Table](t, text)
	for _, c := range got.ColumnDefinitions {
		columns = append(columns, column{c.Name, c.Type, c.Priority})
	}
	for _, row := range got.Rows {
		last := len(row.Cells) - 1
		if age, ok := row.Cells[last].(string); !ok || age == "" {
			t.Errorf("the age of %v is %v", row.Cells[0], row.Cells[last])
		}
		rows = append(rows, row.Cells[:last])
	}
	return columns, rows
}

func TestKubectlGetMaintenances(t *testing.T) {
	o, remove := stored(t, maintenance(t, "shown", with("stage: Drain")))
	defer remove()
	o.Object["status"] = map[string]any{
		"summary": map[string]any{
			"nodes": "3/30", "podsLeft": int64(12), "podsBlocked": int64(2), "message": "worker-4: budget shop/cart allows no more",
		},
		"conditions": []any{map[string]any{
			"type": v1alpha1.Drained, "status": "False", "reason": "Draining", "message": "27 nodes are left",
			"lastTransitionTime": "2026-12-01T10:00:00Z",
		}},
	}
	if _, err := in(admin(t), o).UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
	columns, rows := table(t, "/nodemaintenances/shown")
	want := []column{
		{"Name", "string", 0}, {"Stage", "string", 0}, {"Nodes", "string", 0}, {"Pods left", "integer", 0}, {"Blocked", "integer", 0},
		{"Drained", "string", 0}, {"Why", "string", 0}, {"Age", "date", 0},
	}
	if !reflect.DeepEqual(columns, want) {
		t.Errorf("columns:\n got %v\nwant %v", columns, want)
	}
	row := [][]any{{"shown", "Drain", "3/30", float64(12), float64(2), "False", "worker-4: budget shop/cart allows no more"}}
	if !reflect.DeepEqual(rows, row) {
		t.Errorf("rows:\n got %v\nwant %v", rows, row)
	}
}

func TestKubectlGetRules(t *testing.T) {
	for kind, path := range map[string]string{
		"DrainRule": "/namespaces/default/drainrules/shown", "ClusterDrainRule": "/clusterdrainrules/shown",
	} {
		_, remove := stored(t, object(t, kind, "shown", "{behavior: WaitCompleted, order: -10}"))
		columns, rows := table(t, path)
		remove()
		want := []column{{"Name", "string", 0}, {"Behavior", "string", 0}, {"Order", "integer", 0}, {"Age", "date", 0}}
		if !reflect.DeepEqual(columns, want) {
			t.Errorf("columns of a %s:\n got %v\nwant %v", kind, columns, want)
		}
		if row := [][]any{{"shown", "WaitCompleted", float64(-10)}}; !reflect.DeepEqual(rows, row) {
			t.Errorf("rows of a %s:\n got %v\nwant %v", kind, rows, row)
		}
	}
}

func TestShortNamesAndCategory(t *testing.T) {
	list, err := shared.Cluster(t).Client().Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion().String())
	expect.Must(t, err)
	type resource struct {
		Kind       string
		Namespaced bool
		Short      []string
		Categories []string
	}
	got := map[string]resource{}
	for _, r := range list.APIResources {
		got[r.Name] = resource{r.Kind, r.Namespaced, r.ShortNames, r.Categories}
	}
	category := []string{"rehome"}
	want := map[string]resource{
		v1alpha1.NodeMaintenances:             {"NodeMaintenance", false, []string{"nm"}, category},
		v1alpha1.NodeMaintenances + "/status": {"NodeMaintenance", false, nil, nil},
		v1alpha1.DrainRules:                   {"DrainRule", true, []string{"dr"}, category},
		v1alpha1.ClusterDrainRules:            {"ClusterDrainRule", false, []string{"cdr"}, category},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("resources:\n got %v\nwant %v", got, want)
	}
}
