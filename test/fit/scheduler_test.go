// Package fit_test asks the real kube-scheduler what package fit is asked, and compares.
package fit_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

const (
	// scenes is the number of cluster states, asked the number of pods in each.
	scenes = 21
	asked  = 100
	// atLeast is how many times every reason must be the answer, so that no rule goes untested.
	atLeast = 5
	// wholeDifferences is how many differences are printed with everything that they are about.
	wholeDifferences = 3
)

// tally has the statistics of a whole run.
type tally struct {
	asked, placed, unschedulable, again, differences int
	// nominated counts how often only room that is nominated to other pods was missing.
	nominated int
	reasons   map[fit.Reason]int
}

// TestSchedulerAgreement creates random clusters and pods on the test control plane. A pod must fit on the node that the
// scheduler chooses, and a pod that the scheduler does not place must fit on no node. Half of the pods are pinned to one node, to
// test both answers for single nodes too.
func TestSchedulerAgreement(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	j := newJudge(t, c, rand.New(rand.NewPCG(randtest.Seed(t), 1)))
	start := time.Now()
	for n := range scenes {
		j.scene(n)
	}
	s := &j.seen
	t.Logf("%d pods in %d clusters: %d placed, %d not, %d of them only for nominated room; %d asked twice, %d differences; %v",
		s.asked, scenes, s.placed, s.unschedulable, s.nominated, s.again, s.differences, time.Since(start).Round(time.Second))
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		t.Logf("%6d × %s", s.reasons[reason], reason)
	}
	for _, reason := range reasons() {
		if reason == fit.NodeFeatures && j.minor < 36 {
			continue // the API server refuses the pods that need the feature
		}
		if s.reasons[reason] < atLeast {
			t.Errorf("%s was the answer %d times, want at least %d: the rule is hardly tested", reason, s.reasons[reason], atLeast)
		}
	}
	if s.nominated < atLeast {
		t.Errorf("room that is nominated to others decided %d times, want at least %d", s.nominated, atLeast)
	}
	if s.asked < 2000 || s.placed < 400 || s.unschedulable < 400 {
		t.Errorf("%d pods asked about, %d placed, %d not: want 2000, 400 and 400", s.asked, s.placed, s.unschedulable)
	}
}

// reasons are the reasons that the scheduler can be tested for.
func reasons() []fit.Reason {
	return []fit.Reason{
		fit.Cordoned, fit.Taint, fit.NodeAffinity, fit.NodeFeatures, fit.HostPort, fit.PodCount, fit.Resource,
		fit.VolumeConflict, fit.ClaimInUse, fit.VolumeLimit, fit.ClaimUnusable, fit.VolumeNode, fit.VolumeUnavailable,
		fit.VolumeZone, fit.TopologySpread, fit.PodAffinity, fit.PodAntiAffinity, fit.ExistingAntiAffinity,
	}
}

// judge compares the two, one cluster after the other.
type judge struct {
	t       *testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	client  kubernetes.Interface
	random  *rand.Rand
	asker   *asker
	nodes   []string
	minor   int // the Kubernetes release: 36 is 1.36
	seen    tally
}

// scene creates one state and tests many pods, each deleted before the next one.
func (j *judge) scene(n int) {
	j.t.Helper()
	s := j.set(n)
	s.full, s.bare = s.view(), s.view()
	for i := range s.state.Pods {
		if s.state.Pods[i].Status.NominatedNodeName != "" {
			s.bare.Remove(&s.state.Pods[i])
		}
	}
	for i := range asked {
		if !j.compare(s, fmt.Sprintf("candidate-%d-%d", n, i), s.candidate(i >= asked-waitingAsked)) {
			break // A volume was bound: this is not the same state anymore.
		}
	}
	s.clear()
}

// compare asks both about one pod. It reports whether the state is still the same.
func (j *judge) compare(s *scene, name string, pod *corev1.Pod) bool {
	j.t.Helper()
	pod.Name = name
	got := j.asker.ask(pod)
	for got.invalid { // Two wishes that exclude each other.
		pod = s.candidate(false)
		pod.Name = name
		got = j.asker.ask(pod)
	}
	question := s.full.Ask(got.pod)
	trouble := disagreement(question, got, j.nodes)
	if trouble != "" && !got.spoilt {
		// The scheduler hears of changes a little later than the API server. Only what it says twice counts.
		j.seen.again++
		pod.Name = name + "-again"
		got = j.asker.ask(pod)
		question = s.full.Ask(got.pod)
		trouble = disagreement(question, got, j.nodes)
	}
	j.count(s, question, got)
	if trouble != "" {
		j.seen.differences++
		whole := ""
		if j.seen.differences <= wholeDifferences {
			whole = s.replay(got.pod)
		}
		j.t.Errorf("%s: %s\nthe scheduler said: %s\n%s", name, trouble, got.message, whole)
	}
	return !got.spoilt
}

// disagreement returns the difference between the two, or "".
func disagreement(q *fit.Question, got answer, nodes []string) string {
	if got.node != "" {
		if v := q.On(got.node); !v.OK {
			return fmt.Sprintf("the scheduler chose %s, the verdict is %q", got.node, v)
		}
		return ""
	}
	var fitting []string
	for _, node := range nodes {
		if v := q.On(node); v.OK || !v.Judged {
			fitting = append(fitting, node+" "+v.String())
		}
	}
	if len(fitting) > 0 {
		return fmt.Sprintf("the scheduler found no node, the verdict is: %s", strings.Join(fitting, ", "))
	}
	return ""
}

func (j *judge) count(s *scene, q *fit.Question, got answer) {
	j.seen.asked++
	if got.node != "" {
		j.seen.placed++
		return
	}
	j.seen.unschedulable++
	bare, onlyNominated := s.bare.Ask(got.pod), false
	// The reasons of a pod that is pinned say little about the other nodes.
	for _, node := range j.nodes {
		if pinned := pinnedTo(got.pod); pinned == "" || pinned == node {
			j.seen.reasons[q.On(node).Reason]++
			onlyNominated = onlyNominated || bare.On(node).OK
		}
	}
	if onlyNominated {
		j.seen.nominated++
	}
}
