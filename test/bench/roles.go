package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rehome-dev/rehome/test/kit/program"
)

// separate are the roles that have a process of their own, and what each needs.
var separate = []struct {
	name            string
	cluster, policy bool
}{{"watcher", true, true}, {"actuator", true, true}, {"maintenance", true, true}, {"functions", false, false}, {"dispatcher", false, true}}

// natsServer is the name of the server.
const natsServer = "nats-server"

// apart is one process a role, and the server between them.
type apart struct {
	names     []string
	processes []*process
}

// measureRoles ends the rehome that has all roles, and watches one process for each role and a NATS server instead: while
// nothing happens, and once they have drained nodes.
func (s *stage) measureRoles(ctx context.Context, dir string) ([]row, error) {
	s.rehome.stop()
	a, err := s.startApart(ctx, dir)
	defer a.stop()
	if err != nil {
		return nil, fmt.Errorf("roles: %w", err)
	}
	if err := pause(ctx, rest); err != nil {
		return nil, err
	}
	s.progress.say("watching %v for %v", a.names, s.idle)
	var before, after []time.Duration
	var idle, drained []program.Memory
	var live []float64
	for _, read := range []func() error{
		func() (err error) { before, err = a.used(); return err },
		func() error { return pause(ctx, s.idle) },
		func() (err error) { after, err = a.used(); return err },
		func() (err error) { idle, err = a.memory(); return err },
		func() (err error) { live, err = a.live(); return err },
		func() error { _, err := s.drainByTaint(ctx, plainPods, s.moves); return err },
		func() (err error) { drained, err = a.memory(); return err },
	} {
		if err := read(); err != nil {
			return nil, fmt.Errorf("roles: %w", err)
		}
	}
	var rows []row
	for i, name := range a.names {
		group := "one process a role: " + name
		if live[i] > 0 {
			rows = append(rows, row{Group: group, What: "live Go heap, idle", Unit: "B", Value: live[i]})
		}
		rows = append(rows,
			row{Group: group, What: fmt.Sprintf("idle for %v, share of one core", s.idle), Unit: "%",
				Value: 100 * (after[i] - before[i]).Seconds() / s.idle.Seconds()},
			row{Group: group, What: "resident after the idle time", Unit: "B", Value: idle[i].Resident},
			row{Group: group, What: fmt.Sprintf("resident after a drain of %d pods", s.moves), Unit: "B", Value: drained[i].Resident},
			row{Group: group, What: "highest", Unit: "B", Value: drained[i].Highest},
		)
	}
	return rows, nil
}

// startApart starts the server and the roles. What runs already is returned with an error, too.
func (s *stage) startApart(ctx context.Context, dir string) (*apart, error) {
	a := &apart{}
	binary, policy, err := buildRehome(dir)
	if err != nil {
		return a, err
	}
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return a, err
	}
	a.add(natsServer, server)
	set := exec.CommandContext(ctx, binary, "setup")
	set.Env = append(os.Environ(), "REHOME_NATS_URL="+url)
	if out, err := set.CombinedOutput(); err != nil {
		return a, fmt.Errorf("set up the bus: %w\n%s", err, out)
	}
	for _, r := range separate {
		environment, arguments := []string{"REHOME_NATS_URL=" + url, "REHOME_PROFILES=true"}, []string{r.name}
		if r.cluster {
			environment = append(environment, "KUBECONFIG="+s.cluster.Kubeconfig())
		}
		if r.policy {
			arguments = append(arguments, "--policy", policy)
		}
		p, err := startProcess(ctx, environment, binary, arguments...)
		if err != nil {
			return a, fmt.Errorf("%s: %w", r.name, err)
		}
		a.add(r.name, p)
	}
	return a, nil
}

// startServer builds the NATS server in the version that Rehome embeds, and starts it with the settings of an external bus.
func startServer(ctx context.Context, dir string) (p *process, url string, err error) {
	binary, err := program.BuildNATS()
	if err != nil {
		return nil, "", err
	}
	config := filepath.Join(dir, "nats.conf")
	address, err := program.FreeAddress()
	if err != nil {
		return nil, "", err
	}
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, max_file_store: 64GB, sync_interval: always }\n",
		address, filepath.Join(dir, "nats"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	p = &process{}
	if p.Program, err = program.Start(binary, []string{"-c", config}, nil); err != nil {
		return nil, "", err
	}
	for range 200 {
		if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return p, "nats://" + address, c.Close()
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			break
		}
	}
	p.stop()
	return nil, "", fmt.Errorf("the NATS server does not listen:\n%s", p.lastWords())
}

func (a *apart) add(name string, p *process) {
	a.names, a.processes = append(a.names, name), append(a.processes, p)
}

// stop ends all, the server last.
func (a *apart) stop() {
	for i := range a.processes {
		a.processes[len(a.processes)-1-i].stop()
	}
}

// used returns the processor time that each has used so far.
func (a *apart) used() (all []time.Duration, err error) {
	for _, p := range a.processes {
		d, err := processorTime(p.Pid())
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (a *apart) memory() (all []program.Memory, err error) {
	for _, p := range a.processes {
		m, err := program.MemoryOf(p.Pid())
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// live returns the Go heap of each process after a garbage collection. It is 0 for the NATS server, which does not report it.
func (a *apart) live() (all []float64, err error) {
	for i, p := range a.processes {
		if a.names[i] == natsServer {
			all = append(all, 0)
			continue
		}
		if err := p.collect(); err != nil {
			return nil, err
		}
		metrics, err := p.metrics()
		if err != nil {
			return nil, err
		}
		all = append(all, metrics["go_memstats_heap_alloc_bytes"])
	}
	return all, nil
}
