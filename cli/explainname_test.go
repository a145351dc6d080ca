package cli

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cli/command"
)

func TestAPodIsNamedWithItsNamespaceOrBesideIt(t *testing.T) {
	api := types.NamespacedName{Namespace: "shop", Name: "api-1"}
	for _, c := range []struct {
		namespace, text string
		want            types.NamespacedName
		complaint       string
	}{
		{"", "shop/api-1", api, ""},
		{"shop", "api-1", api, ""},
		{"", "api-1", types.NamespacedName{}, `want a pod such as shop/api-1, got "api-1"`},
		{"shop", "shop/api-1", types.NamespacedName{}, `--namespace: want it with a name such as api-1, got "shop/api-1"`},
		{"shop", "", types.NamespacedName{}, `want a pod such as shop/api-1, got "shop/"`},
	} {
		got, err := command.PodNamedIn(c.namespace, c.text)
		complaint := ""
		if err != nil {
			complaint = err.Error()
		}
		if got != c.want || complaint != c.complaint {
			t.Errorf("%q in %q: got %v %q, want %v %q", c.text, c.namespace, got, complaint, c.want, c.complaint)
		}
	}
}
