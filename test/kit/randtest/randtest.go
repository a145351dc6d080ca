// Package randtest gives random tests a seed that repeats a run.
package randtest

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// SeedVariable is the environment variable with the seed of random tests.
const SeedVariable = "REHOME_TEST_SEED"

// Seed returns the seed of a test: the value of [SeedVariable], or a random one. A failing test prints it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedVariable, err)
		}
	}
	t.Logf("repeat with %s=%d", SeedVariable, seed)
	return seed
}

// New returns a random source for a test, with its [Seed].
func New(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Shuffled returns a shuffled copy of the list.
func Shuffled[E any](r *rand.Rand, list []E) []E {
	other := slices.Clone(list)
	r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

// Value returns a random value of a map. It returns the zero value if the map is empty.
func Value[K cmp.Ordered, V any](r *rand.Rand, of map[K]V) (v V) {
	if len(of) == 0 {
		return v
	}
	keys := slices.Sorted(maps.Keys(of))
	return of[keys[r.IntN(len(keys))]]
}
