// Package mutate changes JSON documents at random, for fuzz tests of code that a random document would not reach.
package mutate

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// JSON returns a document with some of its values removed, or replaced by others of the same document or by strange ones. The same
// seed makes the same changes. The test fails if the document is not JSON.
func JSON(t testing.TB, document []byte, seed uint64, changes int, strange ...any) []byte {
	t.Helper()
	var root any
	if err := json.Unmarshal(document, &root); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range changes {
		values := append([]any{
			"", "x", nil, -1.0, 0.0, 1e9, true, false, []any{}, map[string]any{}, "0001-01-01T00:00:00Z", "2200-01-01T00:00:00Z",
		}, strange...)
		places := walk(root, func(v any) { values = append(values, v) })
		if len(places) == 0 {
			break
		}
		places[r.IntN(len(places))](values[r.IntN(len(values))], r.IntN(4) == 0)
	}
	data, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// walk finds the places of values, in a fixed order. Each returned function sets or removes the value of one place.
func walk(at any, found func(any)) (places []func(value any, out bool)) {
	switch at := at.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(at)) {
			found(at[key])
			places = append(places, func(value any, out bool) {
				if at[key] = copyOf(value); out {
					delete(at, key)
				}
			})
			places = append(places, walk(at[key], found)...)
		}
	case []any:
		for i := range at {
			found(at[i])
			places = append(places, func(value any, _ bool) { at[i] = copyOf(value) })
			places = append(places, walk(at[i], found)...)
		}
	}
	return places
}

// copyOf shares nothing with the value, so a document never contains itself.
func copyOf(value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var other any
	if err := json.Unmarshal(data, &other); err != nil {
		panic(err)
	}
	return other
}
