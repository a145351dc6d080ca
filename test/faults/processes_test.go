package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rehome-dev/rehome/test/program"
)

// roles are the processes by name. Two of them are actuators, and one of these leads.
var roles = []string{"watcher", "functions", "dispatcher", "actuator-0", "actuator-1", "maintenance"}

// mostMemory is how much resident memory a process may have.
const mostMemory = 1 << 30

func processSituations() (all []situation) {
	for _, role := range roles {
		all = append(all,
			situation{"kill of the " + role, 2 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
				return nothing, r.restart(role)
			}},
			situation{"pause of the " + role, 8 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
				p := r.role(role)
				return func() error { return alive(p.Signal(syscall.SIGCONT)) }, alive(p.Signal(syscall.SIGSTOP))
			}})
	}
	return append(all, situation{"memory pressure", 10 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
		role := roles[random.IntN(len(roles))]
		return func() error { return r.restart(role) }, r.restart(role, "GOMEMLIMIT=40MiB", "GOGC=20")
	}})
}

func (r *run) role(name string) *program.Program {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[name]
}

// restart kills the process of a role, and starts another one.
func (r *run) restart(role string, environment ...string) error {
	r.restarting.Lock()
	defer r.restarting.Unlock()
	p := r.role(role)
	select {
	case <-p.Ended:
		return fmt.Errorf("the %s ended by itself: %w\n%s", role, p.Err(), p.Log)
	default:
	}
	p.Kill()
	return r.start(role, environment...)
}

// start starts a role.
func (r *run) start(role string, environment ...string) error {
	command, _, _ := strings.Cut(role, "-")
	arguments := []string{command}
	if command != "functions" {
		arguments = append(arguments, "--policy", r.policy)
	}
	p, err := program.Start(r.rehome, arguments, append(r.environment("REHOME_NATS_URL="+r.wires[role].url()), environment...))
	if err != nil {
		return fmt.Errorf("start %s: %w", role, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[role] = p
	return nil
}

// alive ignores that a process was killed by another situation.
func alive(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// watchMemory reads the memory of all processes, and fails the run when one has too much. It returns when ctx ends.
func (r *run) watchMemory(stop <-chan struct{}) {
	for {
		for _, role := range roles {
			m, err := program.MemoryOf(r.role(role).Pid())
			if err != nil { // it was killed
				continue
			}
			r.memory = max(r.memory, m.Highest)
			if m.Resident > mostMemory {
				r.fail("the %s has %.0f MiB of resident memory", role, m.Resident/(1<<20))
				r.role(role).Kill()
				return
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}
