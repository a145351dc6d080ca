package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

// options are the flags.
type options struct {
	nodes, pods int
	taints      int           // how often a node is tainted
	moves       int           // pods in each drain
	followed    int           // moves of one workload, and of many
	changes     int           // of each kind
	idle        time.Duration // how long the idle processes are watched
	memory      time.Duration // after the start, when memory is read
	benchtime   string        // of each Go benchmark
	parts       []string
	again       bool
	output      string // text or json
	profile     string // file for the samples of perf; empty means none
}

var (
	// mainParts measure the figures of the design. They run in this order.
	mainParts = []string{"scale", "start", "idle", "changes", "taints", "moves", "follow"}
	// moreParts run only by name.
	moreParts = []string{"roles", "decisions", "dispatcher"}
	allParts  = slices.Concat(mainParts, moreParts)
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitUsage)
	}
	err = run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitFailure)
	}
}

// parse reads the command line. The flag package has printed what is wrong with a flag itself.
func parse(arguments []string, stderr io.Writer) (options, error) {
	var o options
	var parts string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.nodes, "nodes", 1000, "nodes of the cluster")
	f.IntVar(&o.pods, "pods", 20000, "pods of the cluster")
	f.IntVar(&o.taints, "taints", 30, "how often a node is tainted, for the part taints")
	f.IntVar(&o.moves, "moves", 250, "pods in each drain, for the parts moves and roles; at most a tenth of all")
	f.IntVar(&o.followed, "followed", 270, "pods of one workload that move, for the part follow; at most a fiftieth of all")
	f.IntVar(&o.changes, "changes", 400, "changes of each kind, for the parts changes and scale; at most a tenth of all pods")
	f.DurationVar(&o.idle, "idle", time.Minute, "how long the idle processes are watched")
	f.DurationVar(&o.memory, "memory", 2*time.Minute, "how long after the start memory is read")
	f.StringVar(&o.benchtime, "benchtime", "100ms", "duration of each Go benchmark; each runs three times")
	f.StringVar(&parts, "parts", strings.Join(mainParts, ","),
		"what to measure, with commas between: all, or some of "+strings.Join(allParts, ","))
	f.BoolVar(&o.again, "again", false,
		"after each report read a line with parts, build rehome again, and measure these parts in the same cluster")
	f.StringVar(&o.output, "o", "text", "text or json")
	f.StringVar(&o.profile, "profile", "", "sample the rehome process with perf during the parts with a cluster, into this file")
	if err := f.Parse(arguments); err != nil {
		return o, err
	}
	o.moves, o.followed, o.changes = min(o.moves, o.pods/10), min(o.followed, o.pods/50), min(o.changes, o.pods/10)
	o, err := o.with(parts)
	if err != nil {
		return o, err
	}
	return o, o.check(f.Args())
}

// with is o with other parts.
func (o options) with(parts string) (options, error) {
	o.parts = strings.Split(strings.TrimSpace(parts), ",")
	if parts == "all" {
		o.parts = allParts
	}
	for _, p := range o.parts {
		if !slices.Contains(allParts, p) {
			return o, fmt.Errorf("--parts: want all or some of %s, got %q", strings.Join(allParts, ","), p)
		}
	}
	return o, nil
}

func (o options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("want no arguments, got %q", rest)
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("-o: want text or json, got %q", o.output)
	case o.nodes < 10:
		return fmt.Errorf("--nodes: want at least 10, got %d", o.nodes)
	case o.pods < 10*o.nodes:
		return fmt.Errorf("--pods: want at least 10 for each of %d nodes, got %d", o.nodes, o.pods)
	case o.taints < 1 || o.moves < 1 || o.followed < 1 || o.changes < 1:
		return errors.New("--taints, --moves, --followed, --changes: want at least 1")
	case o.idle < time.Second:
		return fmt.Errorf("--idle: want at least 1s, got %v", o.idle)
	}
	return nil
}

func (o options) has(part string) bool { return slices.Contains(o.parts, part) }

// needsCluster reports whether a part needs a control plane.
func (o options) needsCluster() bool {
	return slices.ContainsFunc(o.parts, func(p string) bool { return p != "decisions" && p != "dispatcher" })
}

// run measures the parts and prints the report; with again, until there is no further line.
func run(ctx context.Context, o options) (err error) {
	p := &progress{w: os.Stderr, began: time.Now()}
	var s *stage // set with the first part that needs it
	defer func() {
		if s != nil {
			err = errors.Join(err, s.clear())
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	for {
		r := newReport(o)
		watch, watchErr := watchMachine()
		if o.needsCluster() {
			if s == nil {
				if s, err = newStage(ctx, o, p); err != nil {
					return err
				}
			}
			s.options = o
			if r.Rows, r.Environment.OtherProcesses, err = s.run(ctx); err != nil {
				return err
			}
		}
		rows, err := withoutCluster(ctx, o, p)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, rows...)
		r.Environment.Ended = time.Now().UTC()
		if watchErr == nil {
			r.Environment.MachineBusy = watch.busy()
		}
		if err := r.write(os.Stdout, o.output); err != nil || !o.again {
			return err
		}
		p.say("which parts next?")
		if !lines.Scan() {
			return lines.Err()
		}
		if o, err = o.with(lines.Text()); err != nil {
			return err
		}
	}
}

// withoutCluster measures the parts that need no control plane.
func withoutCluster(ctx context.Context, o options, p *progress) (rows []row, err error) {
	if o.has("decisions") {
		if rows, err = measureDecisions(ctx, o, p); err != nil {
			return nil, err
		}
	}
	if o.has("dispatcher") {
		found, err := measureDispatcher(ctx, p)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// progress tells a person what goes on.
type progress struct {
	w     io.Writer
	began time.Time
}

func (p *progress) say(format string, arguments ...any) {
	fmt.Fprintf(p.w, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, arguments...))
}

// rows prints figures at once: a long run may be interrupted.
func (p *progress) rows(rows []row) {
	for _, r := range rows {
		p.say("  %s", strings.Join(strings.Fields(r.cells()), " "))
	}
}
