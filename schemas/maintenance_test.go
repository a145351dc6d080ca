package schemas_test

import (
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

func TestInTable(t *testing.T) {
	type answer struct {
		node string
		is   bool
	}
	long := strings.Repeat("a", 253)
	for name, want := range map[string]answer{
		schemas.RequestedMaintenance("worker-9"):   {"worker-9", true},
		schemas.SignMaintenance("worker-9.rack.a"): {"worker-9.rack.a", true},
		"node/" + long:       {long, true},
		"node/" + long + "a": {},
		"node/":              {},
		"node/-a":            {},
		"node/a-":            {},
		"node/a..b":          {},
		"node/.a":            {},
		"node/a.":            {},
		"node/A":             {},
		"node/a/b":           {},
		"node/a_b":           {},
		"node/../a":          {},
		"nodes/a":            {},
		"sign/a b":           {},
		"/a":                 {},
		"kernel-6.12":        {},
		"node":               {},
		"":                   {},
	} {
		node, is := schemas.InTable(name)
		if got := (answer{node, is}); got != want {
			t.Errorf("%q: got %+v, want %+v", name, got, want)
		}
	}
}
