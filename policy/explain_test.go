package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// golden compares a text with a file. With UPDATE_GOLDEN=1 in the environment the file is written anew, to be read
// before it is committed.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// timedArgs know when a pod is due.
type timedArgs struct {
	MaxAge *uint `json:"maxAge,omitzero"`
}

func (timedArgs) Validate() error { return nil }

func (timedArgs) Due(*corev1.Pod) (at time.Time, ever bool) { return time.Time{}, true }

func TestAPolicyIsExplainedInWords(t *testing.T) {
	strategies := known()
	strategies[0].Summary = "Moves pods from a node that has a taint they do not tolerate."
	strategies[0].Wakes = []schemas.DeltaKind{schemas.NodeTaints, schemas.PodScheduled}
	strategies[1].Summary = "Moves pods from busy nodes."
	strategies[1].Wakes = []schemas.DeltaKind{schemas.NodeAllocatable}
	hour := uint(3600)
	strategies = append(strategies, Strategy{
		Name: "PodLifeTime", Point: Deschedule, Summary: "Moves pods that are too old.", Scope: "pod",
		Wakes: []schemas.DeltaKind{schemas.PodLabels}, NewArgs: func() Args { return &timedArgs{MaxAge: &hour} },
	})
	files, err := filepath.Glob("testdata/explain/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("got %d cases, %v, want at least 3", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Parse(file, data, strategies)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", p.Explain())
		})
	}
}

func TestEveryKindOfDeltaHasWords(t *testing.T) {
	seen := map[string]schemas.DeltaKind{}
	for _, kind := range schemas.DeltaKinds() {
		words := inWords(kind)
		if other, taken := seen[words]; taken || words == "" {
			t.Errorf("%s is %q, as is %s", kind, words, other)
		}
		seen[words] = kind
	}
	if got, want := inWords("claim.resized"), "the resized of a claim changes"; got != want {
		t.Errorf("a kind that is not known is %q, want %q", got, want)
	}
}

// TestEveryRuleThatProtectsIsExplained holds the rules of Protects against those of the explanation.
func TestEveryRuleThatProtectsIsExplained(t *testing.T) {
	var got []string
	for _, r := range (Evictor{}).inWords() {
		got = append(got, r.rule)
	}
	value := int32(1)
	args := on(PodsWithPVC, PodsWithResourceClaims, PodsWithoutPDB)
	args.NodeFit, args.MinReplicas = true, 2
	args.NamespaceLabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	args.PriorityThreshold.Value = &value
	args.MinPodAge.Duration = time.Hour
	args.NoEvictionPolicy = Mandatory
	args.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"move": "yes"}}
	e := evictor(t, args)
	bare := pod(owned())
	all := pod(owned("DaemonSet"), volume("a", emptyDir), volume("b", claim), claiming, notStarted, priority(SystemCritical),
		annotated(PreferNoEviction, "", EvictAnnotation, "false", "karpenter.sh/do-not-disrupt", "true"))
	want := []string{MirrorPods, StaticPods, TerminatingPods}
	nodeFit := evictor(t, EvictorArgs{NodeFit: true})
	for _, found := range [][]schemas.Protection{
		e.Protects(all, noon, told{}), Evictor{}.Protects(bare, noon, nil), nodeFit.Protects(pod(), noon, told{}),
	} {
		for _, p := range found {
			want = append(want, p.Rule)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	got = slices.Compact(got) // a line for each signal, and one rule
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
