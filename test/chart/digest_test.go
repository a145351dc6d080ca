package chart

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestDigest names every image by its digest.
func TestDigest(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	t.Run("every image", func(t *testing.T) {
		t.Parallel()
		used := map[string]bool{}
		for _, spec := range rendered(t, "rehome", "--set", "mode=distributed,nats.enabled=true,image.digest="+digest+",nats.image.digest="+digest).pods(t) {
			for _, kind := range []string{"containers", "initContainers"} {
				containers, _ := spec[kind].([]any)
				for _, c := range containers {
					used[c.(map[string]any)["image"].(string)] = true
				}
			}
		}
		want := []string{"docker.io/library/nats@" + digest, "ghcr.io/rehome-dev/rehome@" + digest}
		if got := slices.Sorted(maps.Keys(used)); !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	for _, key := range []string{"image.digest", "nats.image.digest"} {
		t.Run(key+" is none", func(t *testing.T) {
			t.Parallel()
			out, complaint, err := run(helm(t, "template", "rehome", chart, "--set", key+"=sha256:0123"))
			if err == nil || !strings.Contains(complaint, "'sha256:0123' does not match pattern '^(sha256:[0-9a-f]{64})?$'") {
				t.Errorf("got %v, %q, want a refusal", err, complaint+out)
			}
		})
	}
}
