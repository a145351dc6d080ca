package watcher

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

func raw(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rehome.dev/v1alpha1", "kind": "DrainRule",
		"metadata": map[string]any{
			"namespace": "web", "name": "r", "managedFields": []any{map[string]any{"manager": "kubectl"}},
			"annotations": map[string]any{corev1.LastAppliedConfigAnnotation: "{}", "example.com/kept": "x"},
		},
		"spec": spec,
	}}
}

func TestAnObjectThatCannotBeReadIsLoggedByItsNameAndLeftOut(t *testing.T) {
	var log bytes.Buffer
	read := decoding[v1alpha1.DrainRule](slog.New(slog.NewTextHandler(&log, nil)))
	var told [][2]*v1alpha1.DrainRule
	h := handler(func(old, new *v1alpha1.DrainRule, _ bool) { told = append(told, [2]*v1alpha1.DrainRule{old, new}) })

	good, err := read(raw(map[string]any{"behavior": "Skip", "order": int64(3)}))
	want := &v1alpha1.DrainRule{
		TypeMeta: metav1.TypeMeta{APIVersion: "rehome.dev/v1alpha1", Kind: "DrainRule"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "r", Annotations: map[string]string{"example.com/kept": "x"},
		},
		Spec: v1alpha1.DrainRuleSpec{Behavior: v1alpha1.SkipPods, Order: 3},
	}
	if err != nil || !reflect.DeepEqual(good, want) {
		t.Fatalf("got %+v, %v, want %+v", good, err, want)
	}
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
	if again, err := read(good); err != nil || again != good {
		t.Errorf("read again: got %+v, %v", again, err)
	}
	bad, err := read(raw(map[string]any{"behavior": "Skip", "order": "soon"}))
	if err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "cannot be read and is left out") || !strings.Contains(text, "kind=DrainRule namespace=web name=r") {
		t.Errorf("logged %q", text)
	}
	h.OnAdd(bad, true)
	h.OnUpdate(bad, good)
	h.OnUpdate(good, bad)
	h.OnDelete(bad)
	if want := [][2]*v1alpha1.DrainRule{{nil, nil}, {nil, want}, {want, nil}, {nil, nil}}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
