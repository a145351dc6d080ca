package moves

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/scene"
)

var drainedPods = flag.Int("pods", 80, "how many pods are drained under each limit, at least 40")

// TestDrainKeepsLimits runs one scene for each limit of the policy: all pods leave their node, each once, and the limit holds at
// every moment according to the audit log or the watch of the API server.
func TestDrainKeepsLimits(t *testing.T) {
	t.Parallel()
	pods := *drainedPods
	quarter, perSecond, burst := pods/4, pods/8, pods/16
	window := func(key string) string {
		return fmt.Sprintf("%s\n%s: %d\nlimits: {window: 3s}", scene.FastRate, key, quarter)
	}
	for _, c := range []struct {
		name             string
		nodes, workloads int
		policy           string
		hosting          disturbance
		kept             func(*drain) func()
	}{
		{"so many in a window off a node", 1, 4, window("maxNoOfPodsToEvictPerNode"), undisturbed, inWindow(quarter)},
		{"so many in a window out of a namespace", 1, 4, window("maxNoOfPodsToEvictPerNamespace"), undisturbed, inWindow(quarter)},
		{"so many in a window of all", 1, 4, window("maxNoOfPodsToEvictTotal"), undisturbed, inWindow(quarter)},
		{"so many in a window, with a process that is killed and started again", 1, 4,
			window("maxNoOfPodsToEvictPerNode"), processKilled, inWindow(quarter)},
		{"so many in a window, with another actuator that takes over", 1, 4,
			window("maxNoOfPodsToEvictPerNamespace"), actuatorReplaced, inWindow(quarter)},
		{"a rate", 1, 4, fmt.Sprintf("rate: {evictionsPerSecond: %d, burst: %d}", perSecond, burst),
			undisturbed, byRate(perSecond, burst)},
		{"a rate of each namespace", 1, 4,
			fmt.Sprintf("rate: {evictionsPerSecond: 1000, burst: 1000, perNamespace: {evictionsPerSecond: %d, burst: %d}}", perSecond, burst),
			undisturbed, byRate(perSecond, burst)},
		{"so many at once off a node", 2, 4, scene.FastRate + "\nlimits: {inFlight: {perNode: 4}}", undisturbed, atOnce(byNode, 2, pods/2, 4)},
		{"so many at once out of a namespace", 1, 4,
			scene.FastRate + "\nlimits: {inFlight: {perNamespace: 6}}", undisturbed, atOnce(allTogether, 1, pods, 6)},
		{"so many at once of a workload", 1, 4,
			scene.FastRate + "\nlimits: {inFlight: {perWorkload: 2}}", undisturbed, atOnce(scene.ByDeployment, 4, pods/4, 2)},
		{"so many at once of all", 1, 4, scene.FastRate + "\nlimits: {inFlight: {total: 6}}", undisturbed, atOnce(allTogether, 1, pods, 6)},
		{"so many at once, with a process that is killed and started again", 1, 4,
			scene.FastRate + "\nlimits: {inFlight: {total: 6}}", processKilled, atOnce(allTogether, 1, pods, 6)},
		{"so many at once, with another actuator that takes over", 1, 4,
			scene.FastRate + "\nlimits: {inFlight: {perWorkload: 2}}", actuatorReplaced, atOnce(scene.ByDeployment, 4, pods/4, 2)},
		{"a pause between the pods of a workload", 1, pods / 10,
			scene.FastRate + "\nlimits: {pause: 2s}", undisturbed, apart(2 * time.Second)},
	} {
		t.Run(c.name, parallel(func(t *testing.T) {
			s := newDrain(t, c.nodes, c.workloads, pods/c.workloads)
			middle := c.hosting(s.Scene, s.Policy(strings.Split(c.policy, "\n")...))
			check := c.kept(s)
			began := time.Now()
			s.run(middle)
			t.Logf("%d pods in %v", len(s.before), time.Since(began).Round(time.Millisecond))
			check()
		}))
	}
}

// inWindow checks that at most most pods were evicted in any window.
func inWindow(most int) func(*drain) func() {
	const window = 3 * time.Second
	return func(c *drain) func() {
		return func() {
			got := c.calls()
			for i := range len(got) - most {
				if d := got[i+most].Received.Sub(got[i].Received); d < window {
					c.T.Errorf("evictions %d to %d came within %v, want at most %d in %v", i+1, i+1+most, d, most, window)
				}
			}
		}
	}
}

// byRate checks that the API server never got more evictions than a rate and its burst allow.
func byRate(perSecond, burst int) func(*drain) func() {
	return func(c *drain) func() {
		return func() {
			got := c.calls()
			for i := range got {
				for j := i + 1; j < len(got); j++ {
					span := got[j].Received.Sub(got[i].Received)
					if most := float64(burst) + float64(perSecond)*span.Seconds(); float64(j-i+1) > most {
						c.T.Errorf("%d evictions in %v, want at most %d and %d a second", j-i+1, span, burst, perSecond)
						return
					}
				}
			}
		}
	}
}

// atOnce checks that in each group at most that many pods were unready at once, and that this number was reached, because
// otherwise another limit delayed the moves.
func atOnce(group func(deployment string) string, groups, pods, most int) func(*drain) func() {
	return func(c *drain) func() {
		history := c.WatchPods()
		return func() {
			got, reached := history.MostMissing(group, pods), 0
			for _, n := range got {
				reached = max(reached, n)
			}
			if len(got) != groups || reached != most {
				c.T.Errorf("missing at the worst moment: %v, want %d groups, and %d pods of the worst", got, groups, most)
			}
		}
	}
}

func allTogether(string) string { return "all" }

// byNode returns the node that a Deployment of a drain of two nodes must leave.
func byNode(deployment string) string {
	var i int
	if _, err := fmt.Sscanf(deployment, "app-%d", &i); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("node %d", i%2)
}

// apart checks the time between evictions of one workload.
func apart(pause time.Duration) func(*drain) func() {
	return func(c *drain) func() {
		return func() {
			last := map[string]scene.Eviction{}
			for _, e := range c.calls() {
				workload := workloadOf(e.Pod)
				if before, ok := last[workload]; ok && e.Received.Sub(before.Received) < pause {
					c.T.Errorf("%s was evicted %v after %s, want %v", e.Pod, e.Received.Sub(before.Received), before.Pod, pause)
				}
				last[workload] = e
			}
		}
	}
}

// workloadOf returns the Deployment of a pod, whose name is NAME-HASH-ID.
func workloadOf(pod string) string {
	for range 2 {
		pod = pod[:max(strings.LastIndex(pod, "-"), 0)]
	}
	return pod
}
