// Package expect has the checks that tests of all packages share: errors, values, and conditions that need time.
//
//	expect.Must(t, os.Mkdir(dir, 0o700))
//	expect.Equal(t, "pods", got, want)
//	expect.Eventually(t, "the server answers", answers)
package expect

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"
	"time"
)

// Patience is how long helpers wait for expected results: far longer than necessary, so that a test fails only if they
// never come.
const Patience = 2 * time.Minute

// T is a test with the method Must. Fixtures embed it. The zero value is not usable: set TB.
type T struct{ testing.TB }

// Must ends the test if err is not nil.
func (t T) Must(err error) {
	t.Helper()
	Must(t.TB, err)
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value returns the value of a function. It ends the test if the function returns an error.
func Value[V any](t testing.TB, of func() (V, error)) V {
	t.Helper()
	v, err := of()
	Must(t, err)
	return v
}

// ToJSON encodes a value. It ends the test at an error.
func ToJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	Must(t, err)
	return data
}

// FromJSON decodes a value, and allows unknown fields. It ends the test at an error.
func FromJSON[V any](t testing.TB, data []byte) (v V) {
	t.Helper()
	Must(t, json.Unmarshal(data, &v))
	return v
}

// CopyJSON returns a copy of a value that shares nothing with it: it encodes and decodes the value.
func CopyJSON[V any](t testing.TB, v V) V {
	t.Helper()
	return FromJSON[V](t, ToJSON(t, v))
}

// Indented returns a value in JSON for people, or the error.
func Indented(v any) string {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Equal reports an error unless got and want are deeply equal. what names the value.
func Equal[V any](t testing.TB, what string, got, want V) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n got %+v\nwant %+v", what, got, want)
	}
}

// Eventually calls ok every 10 ms until it returns true. It ends the test after [Patience].
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	EventuallyWithState(t, what, func() (bool, string) { return ok(), "" })
}

// EventuallyWithState is [Eventually] for a condition that also describes what it saw.
func EventuallyWithState(t testing.TB, what string, look func() (ok bool, seen string)) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(Patience)
	for {
		ok, seen := look()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within %v: %s; last seen: %s", Patience, what, seen)
		}
	}
}

// Receive returns the next value of a channel, or the zero value of a closed one. It ends the test after [Patience].
func Receive[V any](t testing.TB, what string, from <-chan V) V {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		t.Fatalf("not within %v: %s", Patience, what)
		panic("unreachable")
	}
}

// Background runs functions until stop is called, or until the end of the test. Both wait for them. The test reports their errors.
func Background(t testing.TB, run ...func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range run {
		running.Go(func() {
			if err := r(ctx); err != nil {
				t.Errorf("in the background: %v", err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(Patience):
			t.Error("it did not end with its context")
		}
	}
	t.Cleanup(stop)
	return stop
}
