package scene

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// Process is a running rehome.
type Process struct {
	*program.Program
	T testing.TB
}

// StartRun starts `rehome run` with the policy file and waits until it is ready. store keeps the bus of a process for the next one.
// environment overrides the settings of the scene.
func (s *Scene) StartRun(policy, store string, environment ...string) *Process {
	s.T.Helper()
	return s.StartRole("run", policy, append([]string{"REHOME_STORE_DIR=" + store}, environment...)...)
}

// StartRole starts `rehome run` or one role with the policy file, and waits until it is ready. The role functions needs no policy.
func (s *Scene) StartRole(name, policy string, environment ...string) *Process {
	s.T.Helper()
	arguments := []string{name}
	if name != "functions" {
		arguments = append(arguments, "--policy", policy)
	}
	p := s.Start(arguments, environment...)
	p.WaitReady()
	return p
}

// Start starts rehome with arguments. The end of the scene kills it.
func (s *Scene) Start(arguments []string, environment ...string) *Process {
	s.T.Helper()
	return &Process{programtest.Start(s.T, s.Binary, arguments, append(s.Environment(), environment...)), s.T}
}

// Environment returns the common settings of all processes of the scene.
func (s *Scene) Environment() []string {
	return append(os.Environ(),
		"KUBECONFIG="+s.Cluster.Kubeconfig(), "REHOME_LEASE_NAMESPACE="+s.Namespace, "REHOME_LEASE_DURATION=3s",
		"REHOME_CLUSTER="+s.Namespace)
}

// Stop sends SIGTERM, as the kubelet does, waits until it is gone, and returns the exit code.
func (p *Process) Stop() int {
	p.T.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		p.T.Fatal(err)
	}
	return p.Exit()
}

// Exit waits until the process ends by itself, and returns its exit code.
func (p *Process) Exit() int {
	p.T.Helper()
	select {
	case <-p.Ended:
	case <-time.After(expect.Patience):
		p.T.Fatalf("rehome did not end within %v", expect.Patience)
	}
	if status, ok := errors.AsType[*exec.ExitError](p.Err()); ok {
		return status.ExitCode()
	}
	return 0
}

// Readiness queries /readyz, and returns the status and the text.
func (p *Process) Readiness() (int, string) { return p.Get("readyz") }

// WaitReady waits until the process is ready.
func (p *Process) WaitReady() {
	p.T.Helper()
	programtest.Ready(p.T, p.Program)
}

// WaitNotReady waits until the process reports that it is not ready.
func (p *Process) WaitNotReady() {
	p.T.Helper()
	p.Eventually("rehome is not ready", func() (bool, string) {
		status, body := p.Readiness()
		return status == http.StatusServiceUnavailable, body
	})
}

// WaitLeads waits until the watcher leads, a little after it is ready. Earlier changes have no deltas.
func (p *Process) WaitLeads() {
	p.T.Helper()
	p.Eventually("the watcher leads", func() (bool, string) {
		return strings.Contains(p.Log.String(), "leading: evaluating everything"), "no such line in its log"
	})
}

// WaitEvaluated waits for the end of the first full evaluation: one scope per node, if the policy has one strategy for nodes. Changes before that are included in
// it, but have no deltas.
func (p *Process) WaitEvaluated(s *Scene) {
	p.T.Helper()
	scopes := regexp.MustCompile(`(?m)^rehome_scopes_total{.*} (\d+)$`)
	p.Eventually("everything is evaluated", func() (bool, string) {
		_, metrics := p.Get("metrics")
		match := scopes.FindStringSubmatch(metrics)
		return match != nil && match[1] == fmt.Sprint(len(s.Nodes)), fmt.Sprint(match)
	})
}

// WaitReloaded waits until the process has reported one reload of its policy file with a result.
func (p *Process) WaitReloaded(result string) {
	p.T.Helper()
	p.Eventually("a policy is "+result, func() (bool, string) {
		got := p.Metric(`rehome_policy_reloads_total{result="` + result + `"}`)
		return got == 1, fmt.Sprint(got)
	})
}

// WaitClusterBreaker waits until the metric reports that the cluster circuit breaker is open only for this reason, or, for "", that
// it is closed.
func (p *Process) WaitClusterBreaker(reason schemas.ReasonCode) {
	p.T.Helper()
	metric := regexp.MustCompile(`(?m)^rehome_cluster_breaker_open\{.*$`)
	var want []string
	if reason != "" {
		want = []string{fmt.Sprintf("rehome_cluster_breaker_open{reason=%q} 1", reason)}
	}
	p.Eventually(fmt.Sprintf("the cluster circuit breaker is open for the reason %q", reason), func() (bool, string) {
		_, metrics := p.Get("metrics")
		got := metric.FindAllString(metrics, -1)
		return slices.Equal(got, want), fmt.Sprint(got)
	})
}

// WaitLog waits until the process has logged the text.
func (p *Process) WaitLog(words string) {
	p.T.Helper()
	p.Eventually("it says "+words, func() (bool, string) { return strings.Contains(p.Log.String(), words), "" })
}

// CheckNotLogged checks that the log has none of these texts.
func (p *Process) CheckNotLogged(words ...string) {
	p.T.Helper()
	for line := range strings.Lines(p.Log.String()) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
			p.T.Errorf("it said: %s", line)
		}
	}
}

// Metric returns the value of one line of the metrics, or 0 if it is missing.
func (p *Process) Metric(name string) (value int) {
	p.T.Helper()
	_, text := p.Get("metrics")
	for line := range strings.Lines(text) {
		if number, ok := strings.CutPrefix(line, name+" "); ok {
			var v float64
			_, _ = fmt.Sscan(number, &v)
			return int(v)
		}
	}
	return 0
}

// Eventually retries until the condition holds, and fails if the process ends.
func (p *Process) Eventually(what string, so func() (bool, string)) {
	p.T.Helper()
	expect.EventuallyWithState(p.T, what, func() (bool, string) {
		ok, seen := so()
		select {
		case <-p.Ended:
			p.T.Fatalf("while waiting until %s, rehome ended: %v", what, p.Err())
		default:
		}
		return ok, seen
	})
}
