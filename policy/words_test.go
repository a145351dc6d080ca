package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/policy/words"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// timedArgs know when a pod is due.
type timedArgs struct {
	MaxAge *uint `json:"maxAge,omitzero"`
}

func (timedArgs) Validate() error { return nil }

func (timedArgs) Due(*corev1.Pod) (at time.Time, ever bool) { return time.Time{}, true }

func TestPolicyExplanation(t *testing.T) {
	strategies := policy.KnownTwo()
	strategies[0].Summary = "Moves pods from a node that has a taint they do not tolerate."
	strategies[0].Wakes = []schemas.DeltaKind{schemas.NodeTaints, schemas.PodScheduled}
	strategies[1].Summary = "Moves pods from busy nodes."
	strategies[1].Wakes = []schemas.DeltaKind{schemas.NodeAllocatable}
	hour := uint(3600)
	strategies = append(strategies, policy.Strategy{
		Name: "PodLifeTime", Point: policy.Deschedule, Summary: "Moves pods that are too old.", Scope: "pod",
		Wakes: []schemas.DeltaKind{schemas.PodLabels}, Traits: policy.Traits{Facts: []policy.Fact{policy.FactDue}}, NewArgs: func() policy.Args { return &timedArgs{MaxAge: &hour} },
	})
	files, err := filepath.Glob("testdata/explain/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("got %d cases, %v, want at least 3", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			expect.Must(t, err)
			p, err := policy.Parse(file, data, strategies)
			expect.Must(t, err)
			policy.Golden(t, strings.TrimSuffix(file, ".yaml")+".txt", words.Text(p))
		})
	}
}

func TestMaintenanceExplanation(t *testing.T) {
	const want = "During the maintenance of a node:\n" +
		"  - a replacement starts first only if it does so in other moves\n" +
		"  - pods with the protection PodsWithPVC and SystemCriticalPods stay\n" +
		"  - the condition NeedsReboot=True of a node starts a maintenance\n" +
		"  - the condition example.com/Healthy=False of a node starts a maintenance\n" +
		"  - the taint example.com/drain of a node starts a maintenance\n" +
		"  - the taint example.com/drain=:NoExecute of a node starts a maintenance\n"
	if got := words.Text(policy.ReadPolicy(t, policy.AllOfMaintenance)); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
	if got := words.Text(policy.ReadPolicy(t, "")); strings.Contains(got, "maintenance") {
		t.Errorf("got\n%s\nwant nothing about maintenances in it", got)
	}
}

func TestSenderExplanation(t *testing.T) {
	nobody := policy.ReadPolicy(t, "requests: {}\n")
	some := policy.ReadPolicy(t, "requests:\n  senders:\n    - name: a\n      nodes: true\n      override: [\"*\"]\n"+
		"    - name: b\n      actions: [deschedule, cancel]\n      namespaces: [shop]\n")
	for text, want := range map[string]string{
		words.Text(nobody): "Accepts no requests.\n",
		words.Text(some): "Accepts requests for at most 500 pods from these senders:\n" +
			"  - a: 10 requests per minute, 20 open at the same time; also for whole nodes; may override every rule\n" +
			"  - b: 10 requests per minute, 20 open at the same time; only to deschedule and cancel; only in the namespaces shop\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant in it\n%s", text, want)
		}
	}
}

func TestPresetExplanation(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte(policy.Start+policy.WithPrometheus+`
presets: [DevKubeVirtRelieveAndMigrate, EvictPodsWithPVC, AffinityAndTaints]
presetCustomizations: {devEnableEvictionsInBackground: true, devMigrationCooldown: 5m}
`), settings.Strategies())
	expect.Must(t, err)
	policy.Golden(t, "testdata/presets/explain.txt", words.Text(p))
}
