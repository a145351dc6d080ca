package cluster

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// outageInterval is how often a lasting outage is logged: the informers try again every few seconds, each.
const outageInterval = 30 * time.Second

// outage logs that the API server cannot be watched, without repeating itself. Each right that is missing is logged for itself:
// they all have to be given.
type outage struct {
	log *slog.Logger
	mu  sync.Mutex
	by  map[string]*rate.Sometimes // by the missing right; empty: any other failure
}

// failed logs a failed watch. A watch that ended normally, or that must list again because its resource version expired, is no
// outage.
func (o *outage) failed(err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	what := ""
	if apierrors.IsForbidden(err) {
		what = err.Error()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[string]*rate.Sometimes{}
	}
	if o.by[what] == nil {
		o.by[what] = &rate.Sometimes{Interval: outageInterval}
	}
	o.by[what].Do(func() { o.log.Warn("the API server cannot be watched; trying again until it can", "error", err) })
}
