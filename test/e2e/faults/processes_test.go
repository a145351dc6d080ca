package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/test/kit/program"
)

// roles are the processes of Rehome. Two of them are actuators. One of these leads.
var roles = []string{"watcher", "functions", "dispatcher", "actuator-0", "actuator-1", "maintenance"}

// mostMemory is the most resident memory that a process may have.
const mostMemory = 512 << 20

func (r *run) process(name string) *program.Program {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[name]
}

// restart kills the process of a role and starts another one, with more environment variables.
func (r *run) restart(role string, environment ...string) error {
	r.restarting.Lock()
	defer r.restarting.Unlock()
	p := r.process(role)
	if hasEnded(p) {
		return fmt.Errorf("the %s ended on its own: %w\n%s", role, p.Err(), p.Log)
	}
	p.Kill()
	return r.start(role, environment...)
}

// start starts a role and waits until it has read its settings.
func (r *run) start(role string, environment ...string) error {
	command, _, _ := strings.Cut(role, "-")
	arguments := []string{command}
	if command != "functions" {
		arguments = append(arguments, "--policy", r.policy)
	}
	if err := r.startProcess(role, r.rehome, arguments, r.environment(append(environment, "REHOME_NATS_URL="+r.wires[role].url())...)...); err != nil {
		return err
	}
	p := r.process(role)
	return r.await("the "+role+" answers", waitLimit, func(ctx context.Context) error {
		if hasEnded(p) {
			return nil // the next restart, or the end of the run, fails
		}
		return get(ctx, "http://"+p.Address+"/healthz")
	})
}

func (r *run) startProcess(name, binary string, arguments []string, environment ...string) error {
	p, err := program.Start(binary, arguments, environment)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[name] = p
	r.logs[p.Log] = name
	return nil
}

// runProcess waits for the end of a command of rehome.
func (r *run) runProcess(arguments []string, environment ...string) error {
	if err := r.startProcess(arguments[0], r.rehome, arguments, environment...); err != nil {
		return err
	}
	p := r.process(arguments[0])
	err := r.await(strings.Join(arguments, " "), waitLimit, func(context.Context) error {
		if !hasEnded(p) {
			return errors.New("it runs")
		}
		return nil
	})
	if err == nil {
		err = p.Err()
	}
	if err != nil {
		return fmt.Errorf("rehome %q: %w\n%s", arguments, err, p.Log)
	}
	return nil
}

// killAll kills the roles and the bus.
func (r *run) killAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.running {
		p.Kill()
	}
}

func hasEnded(p *program.Program) bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// signal ignores a process that another situation has killed.
func signal(p *program.Program, s os.Signal) error {
	if err := p.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (r *run) limitMemory(random *rand.Rand) (end func() error, err error) {
	role := roles[random.IntN(len(roles))]
	return func() error { return r.restart(role) }, r.restart(role, "GOMEMLIMIT=40MiB", "GOGC=20")
}

// watchMemory reads the memory of all processes until stop is closed. It kills a process that has too much.
func (r *run) watchMemory(stop <-chan struct{}) {
	read := func(name string) {
		p := r.process(name)
		m, err := program.MemoryOf(p.Pid())
		if err != nil { // it was killed
			return
		}
		if m.Highest > r.memory {
			r.memory, r.largest = m.Highest, name
		}
		if m.Resident > mostMemory {
			r.fail("the %s has %.0f MiB of resident memory", name, m.Resident/(1<<20))
			p.Kill()
		}
	}
	for {
		for _, role := range roles {
			read(role)
		}
		for _, s := range r.servers {
			read(s.name)
		}
		select {
		case <-stop:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}
