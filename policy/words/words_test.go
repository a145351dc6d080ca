package words

import (
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

func TestDeltaKindWords(t *testing.T) {
	seen := map[string]schemas.DeltaKind{}
	for _, kind := range schemas.DeltaKinds() {
		words := change(kind)
		if other, taken := seen[words]; taken || words == "" {
			t.Errorf("%s is %q, as is %s", kind, words, other)
		}
		seen[words] = kind
	}
	if got, want := change("claim.resized"), "the resized of a claim changes"; got != want {
		t.Errorf("unknown kind is %q, want %q", got, want)
	}
}
