package actuator

import (
	"context"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// enabling returns a policy with one profile that has these strategies.
func enabling(r policy.Rate, strategies ...string) policy.Policy {
	p := policy.Policy{Rate: r, Profiles: []policy.Profile{{Name: "default"}}}
	for _, name := range strategies {
		p.Profiles[0].Strategies = append(p.Profiles[0].Strategies, policy.Enabled{Strategy: policy.Strategy{Name: name}})
	}
	return p
}

var (
	slow  = policy.Rate{EvictionsPerSecond: 0.01, Burst: 1}
	quick = policy.Rate{EvictionsPerSecond: 10, Burst: 1}
)

func TestPolicyChangeRejectsRemovedStrategy(t *testing.T) {
	cfg := Config{Policy: enabling(slow, "A", "B")}
	evicted := schemas.ReasonEvictionAccepted
	inBubble(t, cfg, always(schemas.Evicted, evicted, 100*ms), func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2", "3")
		b.put("B", 2, "3", "4")
		time.Sleep(50 * ms) // the first one is in flight and is not interrupted
		b.SetPolicy(enabling(slow, "B"))
		time.Sleep(60 * ms)
		gone := schemas.ReasonProfileUnknown
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"A-1.2", gone, 50 * ms}, {"A-1.3", gone, 50 * ms}, {"A-1.1", evicted, 100 * ms}})
		time.Sleep(5 * time.Minute)
		expect.Equal(t, "later verdicts", b.bus.heard(t, b.start)[3:], []heard{
			{"B-2.3", evicted, 100*time.Second + 200*ms}, {"B-2.4", evicted, 200*time.Second + 300*ms}, // each since the end of the last
		})
		expect.Equal(t, "answers left in the table", b.bus.left(), 0)
	})
}

func TestPolicyChangeCancelsMoves(t *testing.T) {
	for _, c := range []struct {
		name     string
		strategy string // of the new policy
		want     []string
	}{
		{"of_a_removed_strategy", "B", []string{"step after 0s", "cancel after 10s"}},
		{"but_not_of_others", "A", []string{"step after 0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &stepped{delay: time.Minute}
			inBubble(t, Config{Policy: enabling(fast.Rate, "A"), View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
				b.background, m.began = m, time.Now()
				b.put("A", 1, "1")
				time.Sleep(10 * time.Second)
				b.SetPolicy(enabling(fast.Rate, c.strategy))
				time.Sleep(10 * time.Second)
				m.mu.Lock()
				defer m.mu.Unlock()
				expect.Equal(t, "calls", m.calls, c.want)
			})
		})
	}
}

func TestPolicyChangeRate(t *testing.T) {
	evicted := schemas.ReasonEvictionAccepted
	inBubble(t, Config{Policy: enabling(slow, "A")}, always(schemas.Evicted, evicted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2", "3", "4")
		time.Sleep(time.Second)
		b.SetPolicy(enabling(slow, "A"))
		time.Sleep(time.Second)
		b.SetPolicy(enabling(quick, "A"))
		time.Sleep(time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", evicted, 0}, {"A-1.2", evicted, 2 * time.Second}, {"A-1.3", evicted, 2100 * ms}, {"A-1.4", evicted, 2200 * ms},
		})
	})
}

// A change of another part of the policy must not fill the bucket of a namespace.
func TestPolicyChangeKeepsNamespaceRate(t *testing.T) {
	evicted := schemas.ReasonEvictionAccepted
	p := enabling(fast.Rate, "A")
	p.Rate.PerNamespace = &policy.NamespaceRate{EvictionsPerSecond: 0.01, Burst: 1}
	inBubble(t, Config{Policy: p}, always(schemas.Evicted, evicted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2")
		time.Sleep(time.Second)
		other := p
		other.Rate.PerNamespace = &policy.NamespaceRate{EvictionsPerSecond: 0.01, Burst: 1}
		other.Limits.Total = new(uint(100))
		b.SetPolicy(other)
		time.Sleep(time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"A-1.1", evicted, 0}})
	})
}

func TestPolicyBeforeTerm(t *testing.T) {
	a := New(Config{Policy: enabling(slow, "A")})
	a.SetPolicy(enabling(quick, "A"))
	got := newSession(context.Background(), nil, a, nil, recorder{}).bucket
	expect.Equal(t, "bucket", got, limit.NewBucket(quick))
}

func TestDefaultRate(t *testing.T) {
	a := New(Config{})
	expect.Equal(t, "rate of New", a.policy.Load().Rate, policy.DefaultRate())
	a.SetPolicy(enabling(quick))
	a.SetPolicy(policy.Policy{})
	expect.Equal(t, "rate of SetPolicy", a.policy.Load().Rate, policy.DefaultRate())
}

func TestProfileOfIntent(t *testing.T) {
	p := enabling(slow, "A")
	for _, c := range []struct {
		open Intent
		want bool
	}{
		{Intent{Profile: "default", Strategy: "A"}, true},
		{Intent{Profile: "default", Strategy: "B"}, false},
		{Intent{Profile: "other", Strategy: "A"}, false},
	} {
		if _, got := enables(&p, c.open); got != c.want {
			t.Errorf("%s of %s: got %v, want %v", c.open.Strategy, c.open.Profile, got, c.want)
		}
	}
}
