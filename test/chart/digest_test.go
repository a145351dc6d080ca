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
}
