package docs

import (
	"regexp"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml" //nolint:depguard // Kubernetes types have json tags

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestProtectPage checks what the three files of the page do.
func TestProtectPage(t *testing.T) {
	files := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(filetest.Read(t, root, "docs/protect.md"), -1)
	if len(files) != 3 {
		t.Fatalf("the page has %d files, want 3", len(files))
	}
	var protected, starts appsv1.Deployment
	for i, d := range []*appsv1.Deployment{&protected, &starts} {
		if err := yaml.UnmarshalStrict([]byte(files[i][1]), d); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("the annotation protects its pods", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: *protected.Spec.Template.ObjectMeta.DeepCopy(), Spec: protected.Spec.Template.Spec}
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "ledger-1"}}
		rules := func() (names []string) {
			for _, p := range (policy.Evictor{}).Protects(pod, time.Now(), nil) {
				names = append(names, p.Rule)
			}
			return names
		}
		if got, want := rules(), []string{policy.EvictAnnotationFalseRule}; !slices.Equal(got, want) {
			t.Errorf("protected by %v, want %v", got, want)
		}
		pod.OwnerReferences = nil // a protection of the policy
		if got, want := rules(), []string{policy.FailedBarePods}; !slices.Contains(got, want[0]) {
			t.Errorf("without an owner protected by %v, want also %v", got, want)
		}
		pod.Annotations[policy.EvictAnnotation] = "fasle"
		if got := rules(); len(got) != 0 {
			t.Errorf("with a typing error protected by %v, want none", got)
		}
	})
	t.Run("the policy lets the Deployment take part", func(t *testing.T) {
		p, err := policy.Parse("policy.yaml", []byte(files[2][1]), nil)
		expect.Must(t, err)
		if got := starts.Annotations[policy.RestartMark]; got != "true" || p.Restart.Workloads != policy.RestartAnnotated {
			t.Errorf("annotation %q, policy %q", got, p.Restart.Workloads)
		}
	})
}
