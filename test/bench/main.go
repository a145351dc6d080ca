package main

import (
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

// options are what a person may ask for.
type options struct {
	nodes, pods int
	taints      int           // how often a node is tainted
	drain       int           // pods in each drain
	idle        time.Duration // how long the idle processes are watched
	benchtime   string        // of each Go benchmark
	parts       []string
	output      string // text or json
	profile     string // file for the samples of perf; empty: none
}

// allParts are the parts in the order in which they run.
var allParts = []string{"decisions", "deltas", "dispatcher", "taints", "drain", "idle", "roles"}

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
	f.IntVar(&o.nodes, "nodes", 200, "nodes of the cluster")
	f.IntVar(&o.pods, "pods", 4000, "pods of the cluster")
	f.IntVar(&o.taints, "taints", 30, "how often a node is tainted")
	f.IntVar(&o.drain, "drain", 400, "pods in each drain")
	f.DurationVar(&o.idle, "idle", time.Minute, "how long the idle processes are watched")
	f.StringVar(&o.benchtime, "benchtime", "100ms", "duration of each Go benchmark; each runs five times")
	f.StringVar(&parts, "parts", strings.Join(allParts, ","), "what to measure, with commas between")
	f.StringVar(&o.output, "o", "text", "text or json")
	f.StringVar(&o.profile, "profile", "", "sample the rehome process with perf during taints and drain, into this file")
	if err := f.Parse(arguments); err != nil {
		return o, err
	}
	o.parts = strings.Split(parts, ",")
	return o, o.check(f.Args())
}

func (o options) check(rest []string) error {
	for _, p := range o.parts {
		if !slices.Contains(allParts, p) {
			return fmt.Errorf("--parts: want some of %s, got %q", strings.Join(allParts, ","), p)
		}
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("want no arguments, got %q", rest)
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("-o: want text or json, got %q", o.output)
	case o.nodes < 4:
		return fmt.Errorf("--nodes: want at least 4, got %d", o.nodes)
	case o.pods < o.nodes:
		return fmt.Errorf("--pods: want at least one for each of %d nodes, got %d", o.nodes, o.pods)
	case o.taints < 1:
		return fmt.Errorf("--taints: want at least 1, got %d", o.taints)
	case o.drain < 1 || o.drain > o.pods/2:
		return fmt.Errorf("--drain: want 1 to %d, half of all pods, got %d", o.pods/2, o.drain)
	case o.idle < time.Second:
		return fmt.Errorf("--idle: want at least 1s, got %v", o.idle)
	}
	return nil
}

func (o options) has(part string) bool { return slices.Contains(o.parts, part) }

// run measures the parts and prints the report.
func run(ctx context.Context, o options) error {
	p := &progress{w: os.Stderr, began: time.Now()}
	r := newReport(o)
	watch, watchErr := watchMachine()
	if o.has("decisions") {
		rows, err := measureDecisions(ctx, o, p)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, rows...)
	}
	if o.has("deltas") {
		rows, err := measureDeltas(ctx, o, p)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, rows...)
	}
	if o.has("dispatcher") {
		rows, err := measureDispatcher(ctx, p)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, rows...)
	}
	if o.has("taints") || o.has("drain") || o.has("idle") || o.has("roles") {
		rows, others, err := onStage(ctx, o, p)
		if err != nil {
			return err
		}
		r.Rows = append(rows, r.Rows...)
		r.Environment.OtherProcesses = others
	}
	r.Environment.Ended = time.Now().UTC()
	if watchErr == nil {
		r.Environment.MachineBusy = watch.busy()
	}
	if o.output == "json" {
		return r.writeJSON(os.Stdout)
	}
	return r.writeText(os.Stdout)
}

// progress tells a person what goes on.
type progress struct {
	w     io.Writer
	began time.Time
}

func (p *progress) say(format string, arguments ...any) {
	fmt.Fprintf(p.w, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, arguments...))
}
