package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// waitLimit is the longest time that a step of a situation may take.
	waitLimit = 2 * time.Minute
	// attemptLimit is the longest time that one attempt may take.
	attemptLimit = 30 * time.Second
	// longWait is longer than waits take that are not in trouble.
	longWait = 15 * time.Second
	// dumpSize limits the goroutine dump.
	dumpSize = 1 << 20
)

// await calls attempt until it returns nil. After the limit, it returns the last error and logs a dump of the run. It also logs
// waits that are longer than usual.
func (r *run) await(what string, limit time.Duration, attempt func(context.Context) error) error {
	failed, done := r.awaiting(what)
	defer done()
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	for {
		err := attemptOnce(ctx, attempt)
		if took := time.Since(began); err == nil && took > longWait {
			r.t.Logf("%v until %s", took.Round(time.Second), what)
		}
		if err == nil {
			return nil
		}
		failed(err)
		if !pause(ctx, 100*time.Millisecond) {
			r.dumpOnce.Do(func() { r.t.Log(r.describeBus() + r.dump()) })
			return fmt.Errorf("%s: not within %v: %w", what, limit, err)
		}
	}
}

// completed waits until everything has completed. It returns the history, or nil without one, and what has not completed.
func (r *run) completed() (h *history, unfinished []string) {
	limit := quietLimit
	if r.failed() {
		limit = 10 * time.Second
	}
	err := r.await("every intent has a verdict, and every move has completed", limit, func(ctx context.Context) error {
		read, err := r.readHistory(ctx)
		if err != nil {
			return err
		}
		h = read
		if unfinished = h.unfinished(); len(unfinished) > 0 {
			pause(ctx, time.Second)
			return errors.New(strings.Join(firstOf(3, unfinished), "\n"))
		}
		return nil
	})
	if err != nil {
		r.fail("%v", err)
	}
	return h, unfinished
}

func attemptOnce(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	return attempt(ctx)
}

// wait is something that the run waits for.
type wait struct {
	what  string
	since time.Time
	err   error // of the last attempt
}

// awaiting registers a wait until done is called. failed notes an attempt in vain.
func (r *run) awaiting(what string) (failed func(error), done func()) {
	w := &wait{what: what, since: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited[w] = true
	return func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			w.err = err
		}, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.awaited, w)
		}
}

// dump returns the current waits and all goroutines.
func (r *run) dump() string {
	waits := []string{"the mutex of the run is locked"}
	if r.mu.TryLock() {
		waits = nil
		for w := range r.awaited {
			waits = append(waits, fmt.Sprintf("%s, since %s: %v", w.what, w.since.Format(clock), w.err))
		}
		r.mu.Unlock()
	}
	slices.Sort(waits)
	stacks := make([]byte, dumpSize)
	return fmt.Sprintf("awaited:\n%s\ngoroutines:\n%s", strings.Join(waits, "\n"), stacks[:runtime.Stack(stacks, true)])
}

// watch ends the test program when the run hangs, 30 seconds before go test would. Unlike go test, it kills the processes.
func (r *run) watch() (stop func()) {
	deadline, limited := r.t.Deadline()
	if !limited {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(deadline)-30*time.Second, func() {
		fmt.Fprintf(os.Stderr, "%s\nseed %d: the run hangs; %s\n", r.output(), *seed, r.dump())
		r.killAll()
		for _, s := range r.servers {
			_ = syscall.Unmount(s.store, 0) // one is a mount
		}
		_ = r.cluster.Stop()
		os.Exit(2)
	})
	return func() { timer.Stop() }
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
