package watcher

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// outageInterval is how often a lasting outage is logged: the informers try again every few seconds, each.
const outageInterval = 30 * time.Second

// outage logs that the API server cannot be watched, without repeating itself.
type outage struct {
	log  *slog.Logger
	mu   sync.Mutex
	last time.Time
}

// failed notes one failed watch. A watch that ended in the ordinary way, or whose place in history is gone so that it
// has to list anew, is no outage.
func (o *outage) failed(err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.last) < outageInterval {
		return
	}
	o.last = time.Now()
	o.log.Warn("the API server cannot be watched; trying again until it can", "error", err)
}
