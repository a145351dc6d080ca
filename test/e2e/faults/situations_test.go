package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// family groups situations that exclude each other. Situations of different families combine.
type family int

const (
	ofProcesses family = iota
	ofBus
	ofAPIServer
	ofCluster
	ofInput
	families
)

// action makes a situation begin. The returned function ends it. It is also called after an error, unless it is nil.
type action func(*run, *rand.Rand) (end func() error, err error)

// situation is a fault for a while.
type situation struct {
	family family
	name   string
	lasts  time.Duration // at most
	begin  action
}

// cutsOff reports whether the situation can end the session of the leading actuator, or keep it from the bus or the API server.
func (s situation) cutsOff() bool {
	switch s.family {
	case ofProcesses: // memory pressure restarts any role
		return strings.Contains(s.name, "actuator") || s.name == "memory pressure"
	case ofAPIServer:
		return !strings.HasSuffix(s.name, "controllers") && !strings.HasSuffix(s.name, "scheduler")
	case ofBus:
		return true
	}
	return false
}

// fault is a situation that was active.
type fault struct {
	situation
	interval
}

// core returns the situations of make e2e: kills and restarts.
func core() (list []situation) {
	for _, role := range roles {
		list = append(list, situation{ofProcesses, "kill of the " + role, 2 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			return nil, r.restart(role)
		}})
	}
	return append(list,
		situation{ofBus, "restart of the bus", 4 * time.Second, (*run).restartBus},
		situation{ofAPIServer, "restart of the API server", 4 * time.Second, (*run).restartAPIServer},
	)
}

// situations returns all situations.
func situations() []situation {
	list := core()
	for _, role := range roles {
		list = append(list, situation{ofProcesses, "pause of the " + role, 8 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			p := r.process(role)
			return func() error { return signal(p, syscall.SIGCONT) }, signal(p, syscall.SIGSTOP)
		}})
	}
	return append(list, []situation{
		{ofProcesses, "memory pressure", 10 * time.Second, (*run).limitMemory},

		{ofBus, "partition with cut connections", 8 * time.Second, partition(down)},
		{ofBus, "partition with silent connections", 8 * time.Second, partition(silent)},
		{ofBus, "slow bus", 8 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			r.setWires(slow)
			return func() error { r.setWires(open); return nil }, nil
		}},
		{ofBus, "pause of a server of the bus", 8 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
			p := r.process(r.servers[random.IntN(servers)].name)
			return func() error {
				if err := signal(p, syscall.SIGCONT); err != nil {
					return err
				}
				return r.startBus()
			}, signal(p, syscall.SIGSTOP)
		}},
		{ofBus, "kill of a server of the bus", 4 * time.Second, (*run).restartServer},
		{ofBus, "bus restored to an older state", 2 * time.Second, (*run).restoreBus},
		{ofBus, "full disk of a server of the bus", 6 * time.Second, (*run).fillDisk},
		{ofBus, "bad record in the ledger", 10 * time.Second, (*run).badRecord},

		{ofAPIServer, "pause of the API server", 4 * time.Second, pauseComponent(binaries.APIServer)},
		{ofAPIServer, "pause of etcd", 4 * time.Second, pauseComponent(binaries.Etcd)},
		{ofAPIServer, "restart of the controllers", 6 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			return r.cluster.StartControllers, r.cluster.StopControllers()
		}},
		{ofAPIServer, "pause of the scheduler", 8 * time.Second, pauseComponent(binaries.Scheduler)},
		{ofAPIServer, "lease deleted", 6 * time.Second, (*run).deleteLease},
		{ofAPIServer, "lease taken", 6 * time.Second, (*run).takeLease},

		{ofCluster, "node deleted", 3 * time.Second, (*run).deleteNode},
		{ofCluster, "namespace deleted", 8 * time.Second, (*run).deleteNamespace},
		{ofCluster, "pods recreated under their names", time.Second, (*run).recreatePods},
		{ofCluster, "large annotations", 5 * time.Second, (*run).annotate},
		{ofCluster, "late protection", 10 * time.Second, (*run).protect},
		{ofCluster, "overlapping budgets", 8 * time.Second, (*run).overlapBudgets},
		{ofCluster, "evictions refused in one namespace", 8 * time.Second, (*run).refuseEvictions},
		{ofCluster, "absurd metrics", 20 * time.Second, (*run).reportAbsurdUsage},

		{ofInput, "policy without the strategy", 8 * time.Second, changePolicy("enabled: ["+strategy+", ", "enabled: [")},
		{ofInput, "policy with a lower rate", 8 * time.Second, changePolicy("evictionsPerSecond: 20", "evictionsPerSecond: 2")},
		{ofInput, "unreadable policy", 8 * time.Second, (*run).breakPolicy},
		{ofInput, "garbage on every subject", time.Second, (*run).garbage},
		{ofInput, "slow function", 10 * time.Second, function(answerLate)},
		{ofInput, "function that answers garbage", 10 * time.Second, function(answerGarbage)},
		{ofInput, "function with endless answers", 10 * time.Second, function(answerEndlessly)},
		{ofInput, "function that wants protected pods", 10 * time.Second, function(answerProtectedPods)},
	}...)
}

func partition(is state) action {
	return func(r *run, random *rand.Rand) (func() error, error) {
		w := r.wires[roles[random.IntN(len(roles))]]
		w.set(is)
		return func() error { w.set(open); return nil }, nil
	}
}

func changePolicy(from, to string) action {
	return func(r *run, _ *rand.Rand) (func() error, error) {
		return func() error { return r.writePolicy(r.text) }, r.writePolicy(strings.Replace(r.text, from, to, 1))
	}
}

// suffer plays the situations of a family in random order until ctx ends. Each of them has one turn at least.
func (r *run) suffer(ctx context.Context, list []situation, random *rand.Rand) {
	rest := 4 * time.Second
	if *onlyCore { // these need more time to recover from
		rest *= 4
	}
	for first := true; first || ctx.Err() == nil; first = false {
		random.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		for _, s := range list {
			time.Sleep(between(random, time.Second, rest))
			if ctx.Err() != nil && !first || r.failed() {
				return
			}
			r.play(s, random)
		}
	}
}

// play begins and ends a situation.
func (r *run) play(s situation, random *rand.Rand) {
	began := time.Now()
	_, done := r.awaiting(s.name)
	defer done()
	end, err := s.begin(r, random)
	if err == nil {
		r.count(s.name)
		time.Sleep(between(random, s.lasts/4, s.lasts))
	}
	if end != nil {
		if endErr := end(); err == nil {
			err = endErr
		}
	}
	r.mu.Lock()
	r.faults = append(r.faults, fault{s, interval{began, time.Now()}})
	r.mu.Unlock()
	r.t.Logf("%s to %s: %s", began.Format(clock), time.Now().Format(clock), s.name)
	if err != nil {
		r.fail("%s: %v", s.name, err)
	}
}

// clock is the format of times of day.
const clock = "15:04:05.0"

type interval struct{ from, to time.Time }

// between returns a random duration.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

func pauseComponent(component string) action {
	return func(r *run, _ *rand.Rand) (func() error, error) {
		pid := r.cluster.Pids()[component]
		if pid == 0 { // kill(0) would stop the test
			return nil, fmt.Errorf("%s does not run", component)
		}
		return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
	}
}
