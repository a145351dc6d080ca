package policy

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// golden compares a text with a file. UPDATE_GOLDEN=1 in the environment rewrites the file; review it before the
// commit.
func golden(t *testing.T, file, got string) {
	t.Helper()
	filetest.Golden(t, file, got, os.Getenv("UPDATE_GOLDEN") != "")
}

// TestProtectionRuleExplanations compares the rules of Protects with the explanation.
func TestProtectionRuleExplanations(t *testing.T) {
	var got []string
	for _, r := range (Evictor{}).Rules() {
		got = append(got, r.Name)
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
