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

// Bus is the part of the bus that a [Handler] needs. [bus.Bus] implements it.
type Bus interface {
	Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error)
	Events(ctx context.Context, q bus.Query, handle func(schemas.Event) error) error
	OpenRequests(ctx context.Context) ([]bus.OpenRequest, error)
}

const (
	// receiptWithin limits the wait for a receipt.
	receiptWithin = 5 * time.Second
	// clocks is the tolerated difference between the clocks of this process and the bus.
	clocks = time.Minute
	// parallel limits concurrent requests, and perMinute the requests of one user.
	parallel  = 32
	perMinute = 30
	// retryAfter is the Retry-After header while the bus or the API server is unavailable.
	retryAfter = 5 * time.Second
)

// Handler serves requests over HTTP. Use [New] to make one. It is safe for concurrent use.
type Handler struct {
	bus    Bus
	rights rights
	source string
	log    *slog.Logger
	slots  chan struct{}
	users  *limiter
}

// New returns a handler that authenticates and authorizes users through client, which needs the right to create TokenReviews and
// SubjectAccessReviews. source is the CloudEvents source of the requests.
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
		return serve.Refuse(http.StatusTooManyRequests, "%d requests are in progress, which is the limit", parallel).After(time.Second)
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
		return serve.Refuse(http.StatusTooManyRequests, "user %s has sent %d requests within a minute, which is the limit",
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
	d.DisallowUnknownFields() // it may have been meant to prevent a move
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

// send publishes the request in the trace of its event, waits for the receipt, and writes the response.
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

// errFound stops the read.
var errFound = errors.New("the receipt is there")

// receipt waits for the first receipt for the request in e. It returns the zero Event after the time limit, and also if the bus
// becomes unavailable, because the request is already stored.
func (h *Handler) receipt(ctx context.Context, e schemas.Event, r schemas.Request) (schemas.Event, error) {
	within, cancel := context.WithTimeout(ctx, receiptWithin)
	defer cancel()
	var first schemas.Event
	query := bus.Query{
		Channels: []string{schemas.Receipt{Sender: r.Sender, Name: r.Name}.Channel()}, Since: e.Time.Add(-clocks), Follow: true,
	}
	err := h.bus.Events(within, query, func(got schemas.Event) error {
		if got.CausationID != e.ID {
			return nil // for an earlier request with this name
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
	h.log.Warn("cannot accept a request", "error", err)
	return serve.Refuse(http.StatusServiceUnavailable, "cannot accept the request now: %w", publicError(err)).After(retryAfter)
}

// publicError removes details that clients must not see.
func publicError(err error) error {
	switch {
	case errors.Is(err, bus.ErrFull):
		return bus.ErrFull
	case errors.Is(err, bus.ErrNotConnected), errors.Is(err, bus.ErrNotSetUp):
		return errors.New("the bus is unavailable")
	case errors.Is(err, review.ErrAway):
		return review.ErrAway
	}
	return fmt.Errorf("see the log of the watcher")
}

// limiter limits the requests of each user within a sliding window.
type limiter struct {
	most int
	over time.Duration
	now  func() time.Time

	mu    sync.Mutex
	asked map[string][]time.Time // by user: the times within the window, oldest first
}

// take counts a request and returns 0, or returns the time until the next one is allowed.
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
