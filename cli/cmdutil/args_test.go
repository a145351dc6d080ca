package cmdutil

import (
	"reflect"
	"testing"
)

func TestResources(t *testing.T) {
	for _, c := range []struct {
		args  []string
		kind  string
		names []string
		err   string
	}{
		{[]string{"pod", "a", "b"}, "Pod", []string{"a", "b"}, ""},
		{[]string{"pods"}, "Pod", []string{}, ""},
		{[]string{"po/a"}, "Pod", []string{"a"}, ""},
		{[]string{"Deployments", "a"}, "Deployment", []string{"a"}, ""},
		{[]string{"ds/a"}, "DaemonSet", []string{"a"}, ""},
		{[]string{"Rollout/a"}, "Rollout", []string{"a"}, ""},
		{[]string{"pod/a/b"}, "", nil, `want TYPE NAME or TYPE/NAME, got "pod/a/b"`},
		{[]string{"pod", ""}, "", nil, `want TYPE NAME or TYPE/NAME, got "pod "`},
	} {
		kind, names, err := Resources(c.args)
		failed := ""
		if err != nil {
			failed = err.Error()
		}
		if kind != c.kind || !reflect.DeepEqual(names, c.names) || failed != c.err {
			t.Errorf("%q: got %s %q, error %v; want %s %q, error %s", c.args, kind, names, err, c.kind, c.names, c.err)
		}
	}
}
