package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/notify"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// notifyQuiet is the default of --quiet, and a message waits at most notifyLongest times as long.
	notifyQuiet   = 10 * time.Second
	notifyLongest = 30
	// notifyEnd limits the posts of the last messages after the end.
	notifyEnd = 5 * time.Second
	// notifyRetry is the delay before a message is posted again. It doubles up to notifyRetryMost.
	notifyRetry     = time.Second
	notifyRetryMost = time.Minute
)

// notifyTypes are the events that notifications are made of.
func notifyTypes() []string { return []string{filter.Verdict, filter.Receipt, filter.Maintenance} }

func (f *forwardFlags) notifies() bool { return slices.Contains(notify.Services(), f.to) }

// service is what errors call the URL of notifications, which is a secret.
func (f *forwardFlags) service() string {
	if f.notifies() {
		return "the URL of " + f.to
	}
	return ""
}

func (f *forwardFlags) checkNotify() error {
	services := strings.Join(notify.Services(), ", ")
	switch {
	case !f.notifies() && (f.urlFile != "" || f.template != ""):
		return fmt.Errorf("--url-file and --template: want them with --to %s, got %q", services, f.to)
	case f.notifies() && f.urlFile == "" && !f.add && !f.remove:
		return fmt.Errorf("--to %s: want --url-file, a file with the URL of the service, got none", f.to)
	case f.notifies() && f.quiet <= 0:
		return fmt.Errorf("--quiet: want a duration such as 10s, got %v", f.quiet)
	case f.notifies() && f.urlFile != "" && f.url() == "":
		return fmt.Errorf("--url-file: want a file with the URL of the service, got %q without any", f.urlFile)
	}
	return nil
}

func (f *forwardFlags) readNotify(p *forwardPlan) error {
	if !f.notifies() {
		return nil
	}
	t, err := notify.NewTemplate(f.to, f.template)
	p.template, p.quiet = &t, f.quiet
	return err
}

// notifier posts notifications about the events of a forwarder.
type notifier struct {
	of       *forwarder
	template notify.Template
	tries    int
	changed  chan struct{} // an event was added
	ended    chan struct{} // no more events are added

	mu     sync.Mutex
	digest *notify.Digest
}

func newNotifier(f *forwarder, p forwardPlan) *notifier {
	return &notifier{
		of: f, template: *p.template, tries: p.listener.Tries, digest: notify.NewDigest(p.quiet, notifyLongest*p.quiet),
		changed: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

func (n *notifier) add(e schemas.Event) {
	n.mu.Lock()
	n.digest.Add(e, time.Now())
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// due returns the due notifications, and when the next one is due. Zero means that no group is open.
func (n *notifier) due(all bool) ([]notify.Notification, time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.digest.Due(time.Now(), all), n.digest.Next()
}

// warnLeftOut logs how many notifications were left out since the last call.
func (n *notifier) warnLeftOut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := n.digest.LeftOut(); left > 0 {
		n.of.log.Warn("notifications are left out, because the service is too slow", "count", left)
	}
}

// run posts notifications until ctx ends and no more events come. Then it posts the rest.
func (n *notifier) run(ctx context.Context) error {
	var left []notify.Notification // at the end, not posted yet
	for ctx.Err() == nil {
		due, next := n.due(false)
		for i, one := range due {
			posted := n.post(ctx, one)
			n.warnLeftOut()
			if !posted {
				left = due[i:]
				break
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-timer:
		case <-n.changed:
		case <-ctx.Done():
		}
	}
	<-n.ended
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyEnd)
	defer cancel()
	due, _ := n.due(true)
	for _, one := range append(left, due...) {
		if !n.post(last, one) {
			n.of.log.Error("cannot send a notification before the end", "title", one.Title)
		}
	}
	return nil
}

// post posts a notification until the service accepts it, refuses it, or has answered --tries times without accepting it. It
// returns false if ctx ends before.
func (n *notifier) post(ctx context.Context, one notify.Notification) bool {
	body, err := n.template.Render(one)
	answers := 0
	for delay := notifyRetry; err == nil; delay = min(2*delay, notifyRetryMost) {
		began := time.Now()
		if err = n.of.sink.SendBody(ctx, "application/json", body); err != nil && ctx.Err() != nil {
			return false
		}
		if !isSinkAway(err) {
			answers++
		}
		lost := err != nil && (errors.Is(err, schemas.ErrInvalid) || answers >= n.tries)
		n.of.figures.posted(one.Ended, err, lost, began, time.Now())
		if lost {
			break
		}
		n.of.came(err)
		if err == nil {
			return true
		}
		n.of.log.Warn("a notification waits", "title", one.Title, "error", err)
		select {
		case <-time.After(max(delay, delivery.After(err))):
			err = nil
		case <-ctx.Done():
			return false
		}
	}
	n.of.came(err)
	n.of.log.Error("cannot send a notification", "title", one.Title, "error", err)
	return true
}
