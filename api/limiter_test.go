package api

import (
	"reflect"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := &limiter{most: 2, over: time.Minute, now: func() time.Time { return now }, asked: map[string][]time.Time{}}
	var got []time.Duration
	for _, step := range []struct {
		user  string
		after time.Duration
	}{
		{"a", 0}, {"a", 40 * time.Second}, {"a", 10 * time.Second}, {"b", 0}, {"a", 9 * time.Second}, {"a", time.Second}, {"a", 0}, {"c", time.Hour},
	} {
		now = now.Add(step.after)
		got = append(got, l.take(step.user))
	}
	want := []time.Duration{0, 0, 10 * time.Second, 0, time.Second, 0, 40 * time.Second, 0}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(l.asked) != 1 {
		t.Errorf("the limiter stores %v, want only the last one", l.asked)
	}
}
