package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/program"
)

// rehome is a running Rehome and its output.
type rehome struct {
	out         io.Writer
	run, events *exec.Cmd
	lines       sync.WaitGroup
	mu          sync.Mutex
	seen        []string
}

// start starts `rehome run`, and `rehome events --follow`, which writes to the terminal. They run until ended is done.
func (s *stage) start(ctx, ended context.Context) (*rehome, error) {
	s.say("Starting Rehome, with its page at http://%s/:\n   $ bin/rehome run --policy deploy/policy.yaml &\n   $ bin/rehome events --follow --since 1m", s.page)
	r := &rehome{out: s.out, run: s.command(ended, "run", "--policy", s.policy), events: s.command(ended, "events", "--follow", "--since", "1m")}
	var log program.Log
	r.run.Stderr = &log
	if err := r.run.Start(); err != nil {
		return nil, fmt.Errorf("start rehome: %w", err)
	}
	if err := s.leads(ctx, &log); err != nil {
		r.end()
		return nil, fmt.Errorf("%w; rehome says:\n%s", err, log.String())
	}
	out, err := r.events.StdoutPipe()
	if err == nil {
		err = r.events.Start()
	}
	if err != nil {
		r.end()
		return nil, fmt.Errorf("start rehome events: %w", err)
	}
	r.lines.Go(func() { r.show(out) })
	return r, nil
}

func (s *stage) command(ctx context.Context, arguments ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, s.program, arguments...)
	c.Env = append(os.Environ(),
		"KUBECONFIG="+s.cluster.Kubeconfig(), "REHOME_STORE_DIR="+s.dir, "REHOME_HTTP_ADDRESS=",
		"REHOME_API_LOCAL="+s.page, "REHOME_LOG_LEVEL=INFO")
	c.Stderr = os.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	return c
}

// show copies lines to the terminal and stores them.
func (r *rehome) show(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		fmt.Fprintln(r.out, lines.Text())
		r.mu.Lock()
		r.seen = append(r.seen, lines.Text())
		r.mu.Unlock()
	}
}

// said waits for n lines with this word.
func (r *rehome) said(ctx context.Context, word string, n int) error {
	return await(ctx, fmt.Sprintf("%d lines with %q", n, word), func() (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Count(strings.Join(r.seen, "\n"), word) >= n, nil
	})
}

// end stops both processes and waits for them.
func (r *rehome) end() {
	if r.events.Process != nil {
		_ = r.events.Process.Signal(syscall.SIGTERM)
		r.lines.Wait()
		_ = r.events.Wait()
	}
	_ = r.run.Process.Signal(syscall.SIGTERM)
	_ = r.run.Wait()
}

// leads waits until both roles lead. The watcher acts on changes before it leads, but publishes no deltas for them.
func (s *stage) leads(ctx context.Context, log *program.Log) error {
	err := await(ctx, "the watcher to lead", func() (bool, error) {
		return strings.Contains(log.String(), "leading: evaluating everything"), nil
	})
	if err != nil {
		return err
	}
	return await(ctx, "the lease", func() (bool, error) {
		list, err := s.client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=rehome-actuator",
		})
		return err == nil && len(list.Items) == 1, err
	})
}

// await polls a condition until it is true.
func await(ctx context.Context, what string, so func() (bool, error)) error {
	for {
		ok, err := so()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
