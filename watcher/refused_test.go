package watcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// tooLarge refuses an event permanently, as the bus does.
func tooLarge() error { return fmt.Errorf("%w: maximum payload exceeded", schemas.ErrInvalid) }

func TestRefusedScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := 0
		b := &collected{refuse: func(e schemas.Event) error {
			switch {
			case strings.HasSuffix(e.Channel, ".n1"):
				return tooLarge()
			case strings.HasSuffix(e.Channel, ".n2") && away < 2:
				away++
				return errors.New("no answer")
			}
			return nil
		}}
		nodes := []*corev1.Node{named("n1"), named("n2"), named("n3")}
		leadingWith(t, view(t, outsidePolicy(t, "[node.taints]"), nodes, nil), b, func(w *Watcher, b *collected) {
			time.Sleep(30 * time.Minute)
			// A message after a failed one can be published twice, because the watcher does not know whether it
			// arrived.
			want := []string{"OfNodes n2", "OfNodes n3"}
			expect.Equal(t, "published", slices.Compact(b.take(t)), want)
			expect.Equal(t, "metric", testutil.ToFloat64(w.metrics.refused.WithLabelValues("OfNodes", "p")), 1)
			b.refuse = nil // the node has fewer pods now
			w.nodeChanged(named("n1"), named("n1", fixtures.TaintedBy("a")), false)
			time.Sleep(time.Second)
			expect.Equal(t, "after a change", b.take(t), []string{"OfNodes n1", "node.taints"})
		})
	})
}

func TestRefusedDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &collected{refuse: func(e schemas.Event) error {
			if strings.HasSuffix(e.Channel, "delta.node.taints.n1") {
				return tooLarge()
			}
			return nil
		}}
		nodes := []*corev1.Node{named("n1"), named("n2")}
		leadingWith(t, view(t, outsidePolicy(t, "[pod.labels]"), nodes, nil), b, func(w *Watcher, b *collected) {
			b.take(t)
			w.nodeChanged(named("n1"), named("n1", fixtures.TaintedBy("a")), false)
			w.nodeChanged(named("n2"), named("n2", fixtures.TaintedBy("a")), false)
			time.Sleep(30 * time.Minute)
			expect.Equal(t, "result", b.take(t), []string{"node.taints"})
			expect.Equal(t, "metric", testutil.ToFloat64(w.metrics.deltasDropped), 1)
		})
	})
}
