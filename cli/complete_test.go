package cli

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestComplete(t *testing.T) {
	file := t.TempDir() + "/kubeconfig"
	config := clientcmdapi.NewConfig()
	config.Contexts["prod"] = &clientcmdapi.Context{Namespace: metav1.NamespaceDefault}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for words, want := range map[string]string{
		"evaluate Pod":              "PodLifeTime",
		"serve Remove":              "RemoveFailedPods",
		"events --type ver":         "verdict",
		"events --outcome def":      "deferred",
		"events --strategy Low":     "LowNodeUtilization",
		"get deferred --reason Dis": "DisruptionBudget",
		"get breakers -o ":          "wide",
		"move pod --method r":       "restart",
		"move pod --override Pods":  "PodsWithPVC",
		"drain --on-deadline H":     "Hold",
		"drain --force Con":         "ControlPlane",
		"move st":                   "statefulset",
		"explain n":                 "node",
		"status --context p":        "prod",
		"policy convert --to desch": "descheduler/v1alpha2",
	} {
		out, err := execute(t, append([]string{"__complete"}, strings.Split(words, " ")...)...)
		expect.Must(t, err)
		if !slices.Contains(strings.Split(out, "\n"), want) {
			t.Errorf("%s: got\n%s\nwant %s in it", words, out, want)
		}
	}
}
