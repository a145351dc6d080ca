package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rehome-dev/rehome/test/kit/program"
)

// policyText has eight strategies on, without limits and circuit breakers that would be felt. All but
// RemovePodsViolatingNodeTaints have nothing to move in this cluster, but they watch it, and their indexes are filled.
const policyText = `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
rate: {evictionsPerSecond: 10000, burst: 10000}
limits: {unavailable: 100%, inFlight: {total: null, perNode: null, perNamespace: null}}
circuitBreakers:
  workload: {delay: 0s}
  cluster: {nodes: 0%, pending: 0}
profiles:
  - name: default
    pluginConfig:
      - {name: RemovePodsViolatingNodeTaints}
      - {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 100}}
      - {name: RemoveFailedPods}
      - {name: RemovePodsViolatingInterPodAntiAffinity}
      - {name: RemovePodsViolatingNodeAffinity, args: {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}}
      - {name: RemoveDuplicates, args: {namespaces: {include: [` + namespace + `]}}}
      - {name: RemovePodsViolatingTopologySpreadConstraint}
      - {name: LowNodeUtilization, args: {thresholds: {cpu: 0}, targetThresholds: {cpu: 100}}}
    plugins:
      deschedule:
        enabled:
          - RemovePodsViolatingNodeTaints
          - RemovePodsHavingTooManyRestarts
          - RemoveFailedPods
          - RemovePodsViolatingInterPodAntiAffinity
          - RemovePodsViolatingNodeAffinity
      balance:
        enabled: [RemoveDuplicates, RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization]
`

// process is a running rehome.
type process struct {
	*program.Program
	began time.Time
	store string // directory; empty means none
}

// buildRehome builds rehome, and writes the policy in dir.
func buildRehome(dir string) (binary, policy string, err error) {
	if binary, err = program.Build(); err != nil {
		return "", "", err
	}
	policy = filepath.Join(dir, "policy.yaml")
	return binary, policy, os.WriteFile(policy, []byte(policyText), 0o600)
}

// startRehome builds rehome, starts `rehome run` with a store of its own in dir, and waits until it is ready.
func startRehome(ctx context.Context, dir, name, kubeconfig string) (*process, error) {
	binary, policy, err := buildRehome(dir)
	if err != nil {
		return nil, err
	}
	store := filepath.Join(dir, name)
	p, err := startProcess(ctx, []string{"KUBECONFIG=" + kubeconfig, "REHOME_STORE_DIR=" + store}, binary, "run", "--policy", policy)
	if err != nil {
		return nil, err
	}
	p.store = store
	return p, nil
}

// startProcess starts a program that is rehome, and waits until it is ready.
func startProcess(ctx context.Context, environment []string, binary string, arguments ...string) (*process, error) {
	p := &process{began: time.Now()}
	var err error
	if p.Program, err = program.Start(binary, arguments, environment); err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// waitReady waits until /readyz answers 200.
func (p *process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if status, _ := p.Get("readyz"); status == http.StatusOK {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-p.Ended:
			return fmt.Errorf("rehome ended: %w\n%s", p.Err(), p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("rehome is not ready: %w\n%s", ctx.Err(), p.lastWords())
		}
	}
}

// stop ends the process and waits until it is gone, at most half a minute, which is what Kubernetes gives it.
func (p *process) stop() {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.Ended:
	case <-time.After(30 * time.Second):
		p.Kill()
	}
}

// lastWords returns the last lines of its log.
func (p *process) lastWords() string {
	lines := strings.Split(strings.TrimSpace(p.Log.String()), "\n")
	return strings.Join(lines[max(len(lines)-10, 0):], "\n")
}

// warnings returns the first lines of its log that are warnings or errors.
func (p *process) warnings() []string {
	var found []string
	for line := range strings.Lines(p.Log.String()) {
		if !strings.Contains(line, "level=INFO") && len(found) < 20 {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// figures are metrics by their names, each the sum of all of its series, and by the names and labels of single series.
type figures map[string]float64

// metrics reads the metrics of the process.
func (p *process) metrics() (figures, error) {
	status, body := p.Get("metrics")
	if status != http.StatusOK {
		return nil, fmt.Errorf("metrics: status %d: %s", status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	found := figures{}
	for _, s := range samples {
		found[string(s.Metric[model.MetricNameLabel])] += float64(s.Value)
		if len(s.Metric) > 1 {
			found[s.Metric.String()] = float64(s.Value)
		}
	}
	return found, nil
}

// evaluated reports whether the first full evaluation is over: each node had its scopes, none waits to be published, and none
// waits for an answer.
func (f figures) evaluated(nodes int) bool {
	return f["rehome_scopes_total"] >= float64(nodes) && f["rehome_pending_evaluations"] == 0 &&
		f[`rehome_bus_stream_messages{stream="REHOME_SCOPES"}`] == 0
}

// waitEvaluated waits until everything was evaluated once, and returns how long that took from the start of the process. It
// was so when two looks in a row found it.
func (p *process) waitEvaluated(ctx context.Context, nodes int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var before time.Duration // when the look before found it; 0 means it did not
	for {
		f, err := p.metrics()
		took := time.Since(p.began)
		switch {
		case err != nil:
			return 0, fmt.Errorf("wait for the first full evaluation: %w", err)
		case !f.evaluated(nodes):
			before = 0
		case before > 0:
			return before, nil
		default:
			before = took
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return 0, fmt.Errorf("wait for the first full evaluation: %w", err)
		}
	}
}

// collect has the garbage collected. The process must serve profiles.
func (p *process) collect() error {
	if status, _ := p.Get("debug/pprof/heap?gc=1"); status != http.StatusOK {
		return fmt.Errorf("collect the garbage: status %d", status)
	}
	return nil
}

// sampler collects where a process spends its time, with perf, which also sees the kernel.
type sampler struct{ command *exec.Cmd }

// startSampler begins to sample the process into a file that `perf report` reads. An empty file name samples nothing.
func startSampler(file string, pid int) (*sampler, error) {
	if file == "" {
		return &sampler{}, nil
	}
	if _, err := exec.LookPath("perf"); err != nil {
		return nil, fmt.Errorf("--profile needs the Linux tool perf: %w", err)
	}
	c := exec.Command("perf", "record", "-q", "-F", "499", "-g", "-o", file, "-p", strconv.Itoa(pid))
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	return &sampler{command: c}, nil
}

// stop writes the file. Stopping twice does nothing.
func (s *sampler) stop() error {
	if s.command == nil {
		return nil
	}
	c := s.command
	s.command = nil
	_ = c.Process.Signal(os.Interrupt)
	err := c.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok { // that is how perf ends when it is interrupted
		return nil
	}
	return err
}
