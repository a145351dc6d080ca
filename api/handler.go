package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/api/review"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
)

// Bus is what a [Handler] needs of the bus. [bus.Bus] implements it.
type Bus interface {
	Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error)
	Events(ctx context.Context, q bus.Query, handle func(schemas.Event) error) error
	OpenRequests(ctx context.Context) ([]bus.OpenRequest, error)
}

const (
	// receiptWithin limits the wait for a receipt.
	receiptWithin = 5 * time.Second
	// clocks is how far the clock of the bus may be behind.
	clocks = time.Minute
	// parallel limits requests at a time, and perMinute those of one user.
	parallel  = 32
	perMinute = 30
	// retryAfter is sent when the bus or the API server is away.
	retryAfter = 5 * time.Second
)

// Handler takes requests. [New] makes it. It may be called from many goroutines.
type Handler struct {
	bus    Bus
	rights rights
	source string
	log    *slog.Logger
	slots  chan struct{}
	users  *limiter
}

// New makes a handler that asks the API server through client who asks and what that user may. It needs the right to create
// TokenReviews and SubjectAccessReviews. source is the CloudEvents source of the requests.
func New(client kubernetes.Interface, b Bus, source string, log *slog.Logger) *Handler {
	return &Handler{
		bus: b, rights: rights{review.Reviewer{Client: client}}, source: source, log: log, slots: make(chan struct{}, parallel),
		users: &limiter{most: perMinute, over: time.Minute, now: time.Now, asked: map[string][]time.Time{}},
	}
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.answer(w, r); err != nil {
		h.refusalOf(err).Write(w)
	}
}

// answer runs cheap checks first, and calls to the API server last.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return serve.Refuse(http.StatusMethodNotAllowed, "want the method POST, got %.20s", r.Method).With("Allow", http.MethodPost)
	}
	mode, err := modeOf(r.Header)
	if err != nil {
		return err
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		return serve.Refuse(http.StatusTooManyRequests, "%d requests are being answered, which is the most", parallel).After(time.Second)
	}
	token, err := review.Token(r.Header)
	if err != nil {
		return err
	}
	who, err := h.rights.User(r.Context(), token)
	if err != nil {
		return err
	}
	if wait := h.users.take(who.Username); wait > 0 {
		return serve.Refuse(http.StatusTooManyRequests, "user %s has asked %d times within a minute, which is the most",
			who.Username, perMinute).After(wait)
	}
	e, err := readEvent(w, r, mode)
	if err != nil {
		return err
	}
	request, err := requestOf(e, who.Username)
	if err != nil {
		return err
	}
	places, err := h.placesOf(r.Context(), request)
	if err != nil {
		return err
	}
	if err := h.rights.check(r.Context(), who, request, places); err != nil {
		return err
	}
	return h.send(r.Context(), w, request, e, mode)
}

// overrides reports whether the request lifts protections of pods or guards of the cluster.
func overrides(r schemas.Request) bool {
	return len(r.Override) > 0 || r.Maintenance != nil && len(r.Maintenance.Force) > 0
}

func requestOf(e schemas.Event, user string) (schemas.Request, error) {
	if e.Type != schemas.RequestType {
		return schemas.Request{}, serve.Refuse(http.StatusBadRequest, "the event is of type %.100q, want %s", e.Type, schemas.RequestType)
	}
	var r schemas.Request
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.DisallowUnknownFields() // such a field may be there to keep something from being done
	if err := d.Decode(&r); err != nil {
		return r, serve.Refuse(http.StatusUnprocessableEntity, "%w", err)
	}
	r.Sender, r.Requester = policy.HTTPSender, cut(user, schemas.MaxRequester)
	if r.Name == "" {
		r.Name = "http-" + strings.ToLower(rand.Text()[:16])
	}
	if !schemas.IsRequestWord(r.Name) {
		return r, serve.Refuse(http.StatusUnprocessableEntity, "name: want 1 to 63 of a-z, 0-9 and -, got %.100q", r.Name)
	}
	return r, nil
}

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}

// send publishes the request, in the trace of the event that carried it, waits for the receipt, and writes the response.
func (h *Handler) send(
	ctx context.Context, w http.ResponseWriter, r schemas.Request, asked schemas.Event, mode serve.Mode,
) error {
	e, err := schemas.NewEvent(h.source, r, time.Now(), schemas.Event{TraceParent: asked.TraceParent})
	if err != nil {
		return err
	}
	if _, err := h.bus.Publish(ctx, e); err != nil {
		return err
	}
	h.log.Info("request taken", "request", r.Name, "requester", r.Requester, "action", r.Action, "reason", r.Reason)
	got, err := h.receipt(ctx, e, r)
	if err != nil {
		return err
	}
	name := r.Sender + "/" + r.Name
	if got.ID == "" {
		w.Header().Set("Rehome-Request", name)
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	receipt, err := schemas.Decode[schemas.Receipt](got)
	if err != nil {
		return err
	}
	w.Header().Set("Rehome-Request", name)
	status := statusOf(receipt)
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(int(time.Minute.Seconds())))
	}
	return serve.Write(w, status, mode, []schemas.Event{got})
}

// errFound ends the read.
var errFound = errors.New("the receipt is there")

// receipt waits for the first receipt for the request that e carries. The zero Event: there was none in time. That the bus
// goes away meanwhile is no error: the request is on it.
func (h *Handler) receipt(ctx context.Context, e schemas.Event, r schemas.Request) (schemas.Event, error) {
	within, cancel := context.WithTimeout(ctx, receiptWithin)
	defer cancel()
	var first schemas.Event
	query := bus.Query{
		Channels: []string{schemas.Receipt{Sender: r.Sender, Name: r.Name}.Channel()}, Since: e.Time.Add(-clocks), Follow: true,
	}
	err := h.bus.Events(within, query, func(got schemas.Event) error {
		if got.CausationID != e.ID {
			return nil // for an earlier request of the name
		}
		first = got
		return errFound
	})
	switch {
	case errors.Is(err, errFound):
		return first, nil
	case err != nil:
		return schemas.Event{}, err
	}
	return schemas.Event{}, ctx.Err()
}

func statusOf(r schemas.Receipt) int {
	if r.State != schemas.RequestRejected {
		return http.StatusAccepted
	}
	switch r.Reason {
	case schemas.ReceiptNotAllowed, schemas.ReceiptConflict:
		return http.StatusConflict
	case schemas.ReceiptTooManyRequests:
		return http.StatusTooManyRequests
	}
	return http.StatusUnprocessableEntity
}

func (h *Handler) refusalOf(err error) *serve.Refusal {
	var known *serve.Refusal
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, review.ErrNoToken), errors.Is(err, review.ErrUnknownToken):
		return serve.Refuse(http.StatusUnauthorized, "%w", err).With("WWW-Authenticate", "Bearer")
	case errors.Is(err, bus.ErrOpen):
		return serve.Refuse(http.StatusConflict, "a request of this name is open")
	case errors.Is(err, schemas.ErrInvalid):
		return serve.Refuse(http.StatusUnprocessableEntity, "%w", err)
	}
	h.log.Warn("a request could not be taken", "error", err)
	return serve.Refuse(http.StatusServiceUnavailable, "it cannot be taken now: %w", publicError(err)).After(retryAfter)
}

// publicError hides details from the client.
func publicError(err error) error {
	switch {
	case errors.Is(err, bus.ErrFull):
		return bus.ErrFull
	case errors.Is(err, bus.ErrNotConnected), errors.Is(err, bus.ErrNotSetUp):
		return errors.New("the bus is away")
	case errors.Is(err, review.ErrAway):
		return review.ErrAway
	}
	return fmt.Errorf("see the log of the watcher")
}

// limiter allows each user a number of requests within a window of time.
type limiter struct {
	most int
	over time.Duration
	now  func() time.Time

	mu    sync.Mutex
	asked map[string][]time.Time // by user, oldest first, those of the window
}

// take counts a request, or returns how long to wait.
func (l *limiter) take(user string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for name, times := range l.asked {
		for len(times) > 0 && now.Sub(times[0]) >= l.over {
			times = times[1:]
		}
		if l.asked[name] = times; len(times) == 0 {
			delete(l.asked, name)
		}
	}
	if times := l.asked[user]; len(times) >= l.most {
		return times[0].Add(l.over).Sub(now)
	}
	l.asked[user] = append(l.asked[user], now)
	return 0
}
