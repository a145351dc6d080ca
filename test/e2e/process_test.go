package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// process is a running rehome.
type process struct {
	*program.Program
	t testing.TB
}

// rehome starts `rehome run` with the policy file and waits until it is ready. store keeps the bus of a process for the next one.
// environment overrides the settings of the scene.
func (s *scene) rehome(policy, store string, environment ...string) *process {
	s.t.Helper()
	return s.role("run", policy, append([]string{"REHOME_STORE_DIR=" + store}, environment...)...)
}

// role starts `rehome run` or one role with the policy file, and waits until it is ready. The role functions needs no policy.
func (s *scene) role(name, policy string, environment ...string) *process {
	s.t.Helper()
	arguments := []string{name}
	if name != "functions" {
		arguments = append(arguments, "--policy", policy)
	}
	p := s.start(arguments, environment...)
	p.waitReady()
	return p
}

// start starts rehome with arguments. The end of the scene kills it.
func (s *scene) start(arguments []string, environment ...string) *process {
	s.t.Helper()
	return &process{programtest.Start(s.t, s.stage.rehome, arguments, append(s.environment(), environment...)), s.t}
}

// result is the output and the exit code of a command.
type result struct {
	stdout, stderr string
	code           int
}

func (r result) String() string {
	return fmt.Sprintf("code %d, output %q, errors:\n%s", r.code, r.stdout, r.stderr)
}

// run runs rehome with arguments until it exits.
func (s *scene) run(arguments []string, environment ...string) result {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.Command(s.stage.rehome, arguments...)
	command.Env = append(s.environment(), environment...)
	command.Stdout, command.Stderr = &stdout, &stderr
	timer := time.AfterFunc(expect.Patience, func() { _ = command.Process.Kill() })
	defer timer.Stop()
	err := command.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		s.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// environment returns the common settings of all processes of the scene.
func (s *scene) environment() []string {
	return append(os.Environ(),
		"KUBECONFIG="+s.cluster.Kubeconfig(), "REHOME_LEASE_NAMESPACE="+s.namespace, "REHOME_LEASE_DURATION=3s",
		"REHOME_CLUSTER="+s.namespace)
}

// stop ends the process like Kubernetes, waits until it is gone, and returns the exit code.
func (p *process) stop() int {
	p.t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.exit()
}

// exit waits until the process ends by itself, and returns its exit code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.Ended:
	case <-time.After(expect.Patience):
		p.t.Fatalf("rehome did not end within %v", expect.Patience)
	}
	if status, ok := errors.AsType[*exec.ExitError](p.Err()); ok {
		return status.ExitCode()
	}
	return 0
}

// ready queries /readyz, and returns the status and the text.
func (p *process) ready() (int, string) { return p.Get("readyz") }

func (p *process) waitReady() {
	p.t.Helper()
	programtest.Ready(p.t, p.Program)
}

// evaluated waits for the end of the first full evaluation: one scope per node of the scene. Changes before that are included in
// it, but have no deltas.
func (p *process) evaluated(s *scene) {
	p.t.Helper()
	scopes := regexp.MustCompile(`(?m)^rehome_scopes_total{.*} (\d+)$`)
	p.eventually("everything is evaluated", func() (bool, string) {
		_, metrics := p.Get("metrics")
		match := scopes.FindStringSubmatch(metrics)
		return match != nil && match[1] == fmt.Sprint(len(s.nodes)), fmt.Sprint(match)
	})
}

// says waits until the process has logged the text.
func (p *process) says(words string) {
	p.t.Helper()
	p.eventually("it says "+words, func() (bool, string) { return strings.Contains(p.Log.String(), words), "" })
}

// eventually retries until the condition holds, and fails if the process ends.
func (p *process) eventually(what string, so func() (bool, string)) {
	p.t.Helper()
	expect.EventuallyWithState(p.t, what, func() (bool, string) {
		ok, seen := so()
		select {
		case <-p.Ended:
			p.t.Fatalf("while waiting until %s, rehome ended: %v", what, p.Err())
		default:
		}
		return ok, seen
	})
}

// recording has every event in the history of a bus, in order, and every scope since the start of the recording.
type recording struct {
	t         testing.TB
	validator *schematest.Validator
	mu        sync.Mutex
	events    []schemas.Event
	more      chan struct{}
}

// record follows all events of a bus from the beginning of its history until the test ends, and new scopes, which have no
// history. It validates each event with the published schemas.
func record(t testing.TB, options bus.Options) *recording {
	t.Helper()
	options.Name = cmp.Or(options.Name, "scene")
	options.Log = slog.New(slog.DiscardHandler)
	b, err := bus.Connect(options)
	expect.Must(t, err)
	validator, err := schematest.New()
	expect.Must(t, err)
	r := &recording{t: t, validator: validator, more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var followed sync.WaitGroup
	followed.Go(func() { _ = b.Events(ctx, bus.Query{Since: time.Unix(0, 0), Follow: true}, r.add) })
	followed.Go(func() { _ = b.Subscribe(ctx, []string{bus.ScopeChannels}, nil, r.add) })
	t.Cleanup(func() {
		cancel()
		followed.Wait()
		b.Close()
	})
	return r
}

// at returns the address of the bus of a `rehome run` with that store.
func at(store string) bus.Options { return bus.Options{Socket: filepath.Join(store, "bus.sock")} }

func (r *recording) add(e schemas.Event) error {
	if err := r.validator.Validate(e); err != nil {
		r.t.Errorf("event on %s: %v", e.Channel, err)
	}
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	return nil
}

// all returns every event so far.
func (r *recording) all() []schemas.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// verdicts returns all final verdicts so far, in order.
func (r *recording) verdicts() []schemas.Verdict {
	return slices.DeleteFunc(payloads[schemas.Verdict](r), func(v schemas.Verdict) bool { return v.Outcome == schemas.Settled })
}

// settlements returns the ends of moves so far, in order.
func (r *recording) settlements() []schemas.Verdict {
	return of(schemas.Settled, payloads[schemas.Verdict](r))
}

func payloads[P schemas.Payload](r *recording) []P {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []P
	var p P
	for _, e := range r.events {
		if e.Type != p.EventType() {
			continue
		}
		p, err := schemas.Decode[P](e)
		if err != nil {
			r.t.Errorf("event on %s: %v", e.Channel, err)
			continue
		}
		list = append(list, p)
	}
	return list
}

// until waits until the verdicts meet a condition.
func (r *recording) until(what string, so func([]schemas.Verdict) bool) []schemas.Verdict {
	r.t.Helper()
	deadline := time.After(expect.Patience)
	for {
		verdicts := r.verdicts()
		if so(verdicts) {
			return verdicts
		}
		select {
		case <-r.more:
		case <-deadline:
			r.t.Fatalf("not within %v: %s; verdicts: %s", expect.Patience, what, summary(verdicts))
		}
	}
}

// summary returns a line for each verdict, without the parts that differ between runs.
func summary(verdicts []schemas.Verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&b, "\n  %s %s %s: %s", v.Intent.Pod, v.Outcome, v.Reason, v.Message)
	}
	return b.String()
}

// of returns the verdicts with one outcome.
func of(outcome schemas.Outcome, verdicts []schemas.Verdict) []schemas.Verdict {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v schemas.Verdict) bool { return v.Outcome != outcome })
}

func decodeEviction(t testing.TB, body json.RawMessage) policyv1.Eviction {
	t.Helper()
	var e policyv1.Eviction
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("eviction in the audit log: %v: %s", err, body)
	}
	return e
}
