package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// For any manifest, reading must end, each object must have a name, and its position in the file must not matter.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"kind: Node\napiVersion: v1\nmetadata: {name: n}\n---\nkind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {nodeName: n}\n",
		`{"kind":"List","apiVersion":"v1","items":[{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"a"}},null]}`,
		"kind: PodList\napiVersion: v1\nitems:\n- &a\n  metadata: {name: p}\n- *a\n- {metadata: 7}\n", "a: &a [*a,*a]\n", "---\n---\n\x00", "{", "kind: [",
	} {
		f.Add([]byte(text))
	}
	wanted := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Pod")}
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := Read([]Source{{Name: "a.yaml", Data: text}}, wanted)
		for _, o := range found.Objects {
			if o.GetUID() == "" {
				t.Errorf("%T %s/%s has no UID", o, o.GetNamespace(), o.GetName())
			}
		}
		twice, twiceErr := Read([]Source{{Name: "a.yaml", Data: text}, {Name: "b.yaml", Data: text}}, wanted)
		if err == nil && (twiceErr != nil || len(twice.Objects) != len(found.Objects)) {
			t.Errorf("%d objects; with a copy of the file %d, %v", len(found.Objects), len(twice.Objects), twiceErr)
		}
	})
}
