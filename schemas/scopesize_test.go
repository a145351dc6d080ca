package schemas_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// filled returns n pods of typical size.
func filled(n int) (pods []schemas.ScopedPod) {
	for i := range n {
		pods = append(pods, schemas.ScopedPod{Pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Labels: map[string]string{"a": strings.Repeat("b", 300)}},
		}})
	}
	return pods
}

// TestScopeSize decodes scopes whose lists are far larger in memory than in JSON.
func TestScopeSize(t *testing.T) {
	number := regexp.MustCompile("element [0-9]+ of")
	const largest = 8 << 20 // as in `rehome serve`
	list := func(element string) string {
		all := bytes.Repeat([]byte(element+","), largest/(len(element)+1))
		return "[" + string(all[:len(all)-1]) + "]"
	}
	for name, c := range map[string]struct{ data, list string }{
		"empty pods":         {`{"pods":` + list("{}") + `}`, `"pods"`},
		"null pods":          {`{"pods": ` + list("null") + `}`, `"pods"`},
		"numbers for pods":   {`{"pods":` + list("1") + `}`, `"pods"`},
		"texts for pods":     {`{"pods":` + list(`""`) + `}`, `"pods"`},
		"in capitals":        {`{"PODS":` + list("{}") + `}`, `"PODS"`},
		"in a folded letter": {`{"podſ":` + list("{}") + `}`, `"podſ"`},
		"in an escape":       {`{"po\u0064s":` + list("{}") + `}`, `"po\u0064s"`},
		"after an escape":    {`{"key":"\\\"","pods":` + list("{}") + `}`, `"pods"`},
		"lists of containers": {
			`{"pods":` + list(`{"pod":{"spec":{"containers":[{},{},{},{},{},{},{},{},{},{},{},{}]}}}`) + `}`, `"containers"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := schemas.Event{ID: "e", Type: schemas.ScopeType, Data: []byte(c.data)}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := schemas.Decode[schemas.NodeScope](e)
			runtime.ReadMemStats(&after)
			want := fmt.Sprintf("event e of type dev.rehome.scope.v1: invalid event: its lists need more than %d bytes of memory, "+
				"the limit for a scope of %d bytes, at element N of %s", 4<<20+16*len(c.data), len(c.data), c.list)
			if got := number.ReplaceAllString(fmt.Sprint(err), "element N of"); !errors.Is(err, schemas.ErrInvalid) || got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("decoding %d bytes allocates %d bytes, want at most %d", len(c.data), used, 1<<20)
			}
		})
	}
	t.Run("real pods", func(t *testing.T) {
		e := newEvent(t, schemas.NodeScope{Pods: filled(22_000)}, schemas.Event{})
		got, err := schemas.Decode[schemas.NodeScope](e)
		if len(e.Data) < largest || err != nil || len(got.Pods) != 22_000 {
			t.Errorf("got %d pods in %d bytes, and %v; want 22000 pods", len(got.Pods), len(e.Data), err)
		}
	})
	t.Run("many short names", func(t *testing.T) {
		s := schemas.WorkloadScope{Nodes: []schemas.NodeGroup{{Names: strings.Split(strings.Repeat("n ", 2<<20), " ")}}}
		got, err := schemas.Decode[schemas.WorkloadScope](newEvent(t, s, schemas.Event{}))
		if err != nil || len(got.Nodes) != 1 || len(got.Nodes[0].Names) != 2<<20+1 {
			t.Errorf("got %d groups of nodes and %v", len(got.Nodes), err)
		}
	})
	t.Run("no JSON", func(t *testing.T) {
		for _, data := range []string{"", `"`, `"\`, "]", "}", ",", "[", `[,`, `{"pods":[`, `{[`} {
			e := schemas.Event{ID: "e", Type: schemas.ScopeType, Data: []byte(data)}
			if _, err := schemas.Decode[schemas.NodeScope](e); !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("%q: got %v, want an error that is ErrInvalid", data, err)
			}
		}
	})
}
