package delivery_test

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

func TestAfter(t *testing.T) {
	full := errors.New("all hands are busy")
	for name, c := range map[string]struct {
		err   error
		after time.Duration
		text  string
	}{
		"with a delay":    {&delivery.Later{After: 3 * time.Second, Err: full}, 3 * time.Second, "try again after 3s: all hands are busy"},
		"without a delay": {&delivery.Later{Err: full}, 0, "try again: all hands are busy"},
		"it is wrapped":   {fmt.Errorf("ask: %w", &delivery.Later{After: time.Minute, Err: full}), time.Minute, "ask: try again after 1m0s: all hands are busy"},
		"another kind":    {delivery.ErrUnreachable, 0, "unreachable"},
	} {
		if got := delivery.After(c.err); got != c.after || c.err.Error() != c.text {
			t.Errorf("%s: got %v, %q; want %v, %q", name, got, c.err, c.after, c.text)
		}
	}
	if err := (&delivery.Later{Err: full}); !errors.Is(err, full) {
		t.Errorf("%v does not wrap its reason", err)
	}
}

func TestReadAfter(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for name, c := range map[string]struct {
		text string
		want time.Duration
	}{
		"seconds":                     {"90", 90 * time.Second},
		"no time":                     {"0", 0},
		"seconds above the limit":     {"86400", delivery.MaxAfter},
		"seconds above any number":    {"99999999999999999999", 0},
		"a date":                      {now.Add(30 * time.Second).Format(http.TimeFormat), 30 * time.Second},
		"a date above the limit":      {now.Add(time.Hour).Format(http.TimeFormat), delivery.MaxAfter},
		"a date that has passed":      {now.Add(-time.Hour).Format(http.TimeFormat), 0},
		"less than nothing":           {"-5", 0},
		"neither a number nor a date": {"soon", 0},
		"nothing":                     {"", 0},
	} {
		if got := delivery.ReadAfter(c.text, now); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	large := fmt.Errorf("publish: %w: %w", schemas.ErrInvalid, errors.New("too large"))
	wrong := fmt.Errorf("publish: %w: wrong", schemas.ErrInvalid)
	refused := func(id string, err error) error { return &delivery.Undelivered{ID: id, Err: err} }
	away := refused("c", delivery.ErrUnreachable)
	for name, c := range map[string]struct {
		err     error
		refused map[string]error
		rest    string
	}{
		"all arrived":         {nil, nil, ""},
		"one refused":         {refused("a", large), map[string]error{"a": large}, ""},
		"several are refused": {errors.Join(refused("a", large), refused("b", wrong)), map[string]error{"a": large, "b": wrong}, ""},
		"one of two refused":  {errors.Join(away, refused("a", large)), map[string]error{"a": large}, "unreachable"},
		"none refused":        {errors.Join(away, away), nil, "unreachable\nunreachable"},
		"joined twice":        {errors.Join(errors.Join(refused("a", large)), away), map[string]error{"a": large}, "unreachable"},
		"without an event":    {large, nil, large.Error()},
	} {
		got, rest := delivery.Refused(c.err)
		if text := fmt.Sprint(rest); !reflect.DeepEqual(got, c.refused) || text != c.rest && (c.rest != "" || rest != nil) {
			t.Errorf("%s: got %v and %v, want %v and %q", name, got, rest, c.refused, c.rest)
		}
	}
}
