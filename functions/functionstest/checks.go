package functionstest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ThroughJSON is what arrives of the arguments of a strategy in a scope. The test fails if something gets lost.
func ThroughJSON[A any](t testing.TB, args A) A {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	var got A
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, args) {
		t.Errorf("got %+v from %s, want %+v", got, data, args)
	}
	return got
}

// Refused compares what is wrong with some arguments, as their Validate says it, with the lines that are wanted.
func Refused(t testing.TB, err error, want ...string) {
	t.Helper()
	var got []string
	if err != nil {
		got = strings.Split(err.Error(), "\n")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// SeedVariable names the environment variable that repeats a run of chance.
const SeedVariable = "REHOME_TEST_SEED"

// Random is chance for one test. The output of a test that fails says how to repeat it.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedVariable, err)
		}
	}
	t.Logf("repeat with %s=%d", SeedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}
