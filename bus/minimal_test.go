// These tests run thousands of jobs on hundreds of servers, which takes minutes with the race detector.

//go:build !race

package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestMinimalRights(t *testing.T) {
	t.Parallel() // most of it is waiting for what does not come
	for _, job := range jobs {
		all := bus.RightsOf(job.who, hosting)
		t.Run(job.who.String(), func(t *testing.T) {
			t.Parallel()
			for rest := range slices.Chunk(without(all), 20) { // each on a server of its own
				t.Run("from "+rest[0].missing, func(t *testing.T) {
					t.Parallel()
					h := newHouse(t, job.who, all, "")
					p := h.join(t, job.who, "")
					if err := p.inTime(job.do); err != nil || len(p.refusals.list()) > 0 {
						t.Fatalf("with all of its rights: %v; refused: %q", err, p.refusals.list())
					}
					for _, less := range rest {
						t.Run(less.missing, func(t *testing.T) { h.fails(t, job.who, less, job.do) })
					}
				})
			}
		})
	}
}

// TestPrefix does the jobs with a prefix beside streams without one.
func TestPrefix(t *testing.T) {
	t.Parallel()
	under := hosting
	under.Prefix = "eu1"
	for _, job := range jobs {
		t.Run(job.who.String(), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, job.who, bus.RightsOf(job.who, under), under.Prefix)
			beside := bustest.Connect(t, bus.Options{Name: "beside", URL: h.url("admin")})
			bustest.SetUp(t, beside, bus.Setup{Strategies: []string{strategy}})
			p := h.join(t, job.who, "")
			if err := p.inTime(job.do); err != nil || len(p.refusals.list()) > 0 {
				t.Fatalf("got %v; refused: %q", err, p.refusals.list())
			}
			all, err := beside.Status(t.Context())
			expect.Must(t, err)
			for _, s := range all {
				if s.Messages > 0 {
					t.Errorf("stream %s without the prefix has %d messages, want none", s.Name, s.Messages)
				}
			}
		})
	}
	for _, wrong := range []bus.Prefix{"eu.1", "eu_1", "*", "a b", "rehome", "KV", bus.Prefix(strings.Repeat("x", 33))} {
		if wrong.Check() == nil {
			t.Errorf("%q: want an error", wrong)
		}
	}
}

// fails checks that a job fails at once without one of its rights, and that the error names the right.
func (h *house) fails(t *testing.T, who bus.Participant, less rightsWithout, do func(part) error) {
	p := h.join(t, who, less.missing)
	err := p.inTime(do)
	names := func(subject string) bool {
		return less.missing == "reply" || server.SubjectsCollide(less.missing, subject)
	}
	expect.Eventually(t, fmt.Sprintf("the right is named, and not only: %v", err), func() bool {
		return slices.ContainsFunc(p.refusals.list(), names)
	})
	if err != nil && !errors.Is(err, bus.ErrNotPermitted) && !errors.Is(err, context.Canceled) { // see part.until
		t.Errorf("got %v, want that it is not permitted", err)
	}
	if slices.ContainsFunc(p.refusals.ofBus(), names) {
		ready := p.bus.Ready()
		if p.asReader != nil && ready == nil { // the right was needed there
			ready = p.asReader.Ready()
		}
		if !errors.Is(ready, bus.ErrNotPermitted) || !strings.Contains(ready.Error(), " may not ") {
			t.Errorf("ready: got %v, want which right %s does not have", ready, who)
		}
	}
}
