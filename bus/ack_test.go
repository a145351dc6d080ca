package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestOutcomeOfAttempt(t *testing.T) {
	broken := errors.New("the API is away")
	invalid := fmt.Errorf("scope 7: %w", schemas.ErrInvalid)
	stopped := fmt.Errorf("ask the function: %w", context.Canceled)
	busy := fmt.Errorf("ask the function: %w", &delivery.Later{After: 5 * time.Second, Err: broken})
	delays := backoff{first: time.Second, most: time.Minute}
	tests := map[string]struct {
		attempt attempt
		verb    verb
		delay   time.Duration
	}{
		"done":                                 {attempt{nil, false, 1, 6}, ack, 0},
		"done after its context ended":         {attempt{nil, true, 1, 6}, ack, 0},
		"done at the last attempt":             {attempt{nil, false, 6, 6}, ack, 0},
		"invalid":                              {attempt{invalid, false, 1, 6}, bury, 0},
		"invalid after its context ended":      {attempt{invalid, true, 1, 6}, bury, 0},
		"lost":                                 {attempt{errUnfinished, false, 0, 6}, bury, 0},
		"stopped":                              {attempt{stopped, true, 1, 6}, nak, 0},
		"stopped at the last attempt":          {attempt{stopped, true, 6, 6}, nak, 0},
		"cancelled by itself":                  {attempt{stopped, false, 1, 6}, nak, time.Second},
		"failed after its context ended":       {attempt{broken, true, 1, 6}, nak, time.Second},
		"failed for the first time":            {attempt{broken, false, 1, 6}, nak, time.Second},
		"failed for the second time":           {attempt{broken, false, 2, 6}, nak, 2 * time.Second},
		"failed for the fifth time":            {attempt{broken, false, 5, 6}, nak, 16 * time.Second},
		"failed at the last attempt":           {attempt{broken, false, 6, 6}, bury, 0},
		"failed after the last attempt":        {attempt{broken, false, 7, 6}, bury, 0},
		"failed often, without a last attempt": {attempt{broken, false, 1000, -1}, nak, time.Minute},
		"asked to wait for longer":             {attempt{busy, false, 1, 6}, nak, 5 * time.Second},
		"asked to wait for less":               {attempt{busy, false, 5, 6}, nak, 16 * time.Second},
		"asked to wait, at the last attempt":   {attempt{busy, false, 6, 6}, bury, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v, d := outcome(test.attempt, delays, 0)
			if v != test.verb || d != test.delay {
				t.Errorf("got %s after %v, want %s after %v", v, d, test.verb, test.delay)
			}
		})
	}
}

func TestBackoffDelays(t *testing.T) {
	b := backoff{first: time.Second, most: 5 * time.Second}
	var got []time.Duration
	for n := range 5 {
		got = append(got, b.delay(n+1, 0), b.delay(n+1, 0.5))
	}
	want := "[1s 750ms 2s 1.5s 4s 3s 5s 3.75s 5s 3.75s]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestDeadLetterFitsIntoOneMessage(t *testing.T) {
	l := letter{
		Stream: StreamScopes, Subject: "rehome.scope.S.p.node.a", Sequence: 7,
		Header: nats.Header{"ce-id": {"1"}, "Nats-Expected-Last-Sequence": {"3"}, "nats-msg-id": {"x"}},
		Data:   make([]byte, 100_000),
	}
	m := deadLetter(l, "RemovePods", errors.New(strings.Repeat("one\ntwo ", 10_000)), 64<<10)
	if size := size(m); size > 64<<10 {
		t.Errorf("letter has %d bytes", size)
	}
	got := fmt.Sprint(m.Subject, m.Header["ce-id"], m.Header[HeaderTruncated], m.Header["Nats-Expected-Last-Sequence"],
		m.Header["nats-msg-id"], m.Header.Get(HeaderError)[:15])
	want := "rehome.dead.REHOME_SCOPES.RemovePods[1] [100000] [] []one two one two"
	expect.Equal(t, "result", got, want)
}

// size returns the number of bytes in the headers and the body of a message.
func size(m *nats.Msg) (n int) {
	for key, values := range m.Header {
		for _, v := range values {
			n += len(key) + len(v) + len(": \r\n")
		}
	}
	return n + len(m.Data)
}
