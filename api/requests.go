package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/status"
)

const (
	// receiptWithin limits the wait for a receipt.
	receiptWithin = 5 * time.Second
	// clocks is the tolerated difference between the clocks of this process and the bus.
	clocks = time.Minute
	// parallel limits concurrent requests, and perMinute the requests of one user.
	parallel  = 32
	perMinute = 30
	// mostBytes limits the body of a request.
	mostBytes = 64 << 10
)

func (s *Server) registerRequests(a huma.API) {
	huma.Register(a, huma.Operation{
		OperationID: "list-requests", Method: http.MethodGet, Path: "/v1/requests",
		Summary:     "Open requests: all, or only the caller's without the right to see everything",
		Middlewares: huma.Middlewares{s.inTurn},
	}, answer(s, s.listRequests))
	huma.Register(a, huma.Operation{
		OperationID: "get-request", Method: http.MethodGet, Path: "/v1/requests/{sender}/{name}",
		Summary:     "An open request and its last receipt",
		Middlewares: huma.Middlewares{s.inTurn},
	}, answer(s, s.getRequest))
	receipt := func(text string) *huma.Response {
		return &huma.Response{Description: text, Content: map[string]*huma.MediaType{
			cloudevent.StructuredJSON: {Schema: &huma.Schema{
				Type: huma.TypeObject, Description: "a CloudEvent of type " + schemas.ReceiptType,
			}},
		}}
	}
	huma.Register(a, huma.Operation{
		OperationID: "request", Method: http.MethodPost, Path: "/v1/requests", MaxBodyBytes: mostBytes,
		Summary: "Request a move, the maintenance of a node, an evaluation, or a cancellation",
		Description: "The body is a CloudEvent of type " + schemas.RequestType + " in structured mode, or in binary mode with the " +
			"type application/json and attributes in headers. The receipt has the same mode. Without a receipt within five seconds, " +
			"the response has no body.",
		Responses: map[string]*huma.Response{
			"202": receipt("The request is on the bus. Rehome has accepted it or not answered yet."),
			"409": receipt("The request conflicts with another one, or is not allowed."),
			"422": receipt("The request violates the contract, or was rejected."), "429": receipt("Too many requests."),
		},
	}, answer(s, s.postRequest))
}

type requestsOutput struct {
	Body struct {
		Requests []status.OpenRequest `json:"requests"`
	}
}

func (s *Server) listRequests(ctx context.Context, _ *struct{}) (*requestsOutput, error) {
	u := callOf(ctx).user
	a, err := s.access(ctx, u)
	if err != nil {
		return nil, err
	}
	now, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := &requestsOutput{}
	out.Body.Requests = a.status(now.status, u).Requests
	return out, nil
}

// made reports whether the user made the request with this sender and requester.
func (u user) made(sender, requester string) bool {
	return sender == policy.HTTPSender && requester == u.requester()
}

type requestInput struct {
	Sender string `path:"sender" maxLength:"63"`
	Name   string `path:"name" maxLength:"63"`
}

type requestOutput struct {
	Body struct {
		// Request is the request, if it is open.
		Request *status.OpenRequest `json:"request,omitempty"`
		// Receipt is the last one, and At its time.
		Receipt *schemas.Receipt `json:"receipt,omitempty"`
		At      time.Time        `json:"at,omitzero"`
	}
}

func (s *Server) getRequest(ctx context.Context, in *requestInput) (*requestOutput, error) {
	if !schemas.IsRequestWord(in.Sender) || !schemas.IsRequestWord(in.Name) {
		return nil, serve.Refuse(http.StatusUnprocessableEntity,
			"want a sender and a name of 1 to 63 of a-z, 0-9 and -, got %.100q and %.100q", in.Sender, in.Name)
	}
	u, out := callOf(ctx).user, &requestOutput{}
	denied := s.maySeeAll(ctx, u)
	if denied != nil && !errors.As(denied, new(*serve.Refusal)) {
		return nil, denied
	}
	maySee := func(sender, requester string) bool { return denied == nil || u.made(sender, requester) }
	open, err := s.Bus.OpenRequest(ctx, in.Sender, in.Name)
	if err != nil {
		return nil, err
	}
	if open != nil && maySee(open.Sender, open.Requester) {
		out.Body.Request = &status.OpenRequest{Request: open.Request, Since: open.Stored.UTC()}
	}
	told, err := s.Bus.Receipt(ctx, in.Sender, in.Name)
	if err != nil {
		return nil, err
	}
	// Another user may have had the name before.
	if r, err := schemas.Decode[schemas.Receipt](told); err == nil && maySee(r.Sender, r.Requester) {
		out.Body.Receipt, out.Body.At = &r, told.Time.UTC()
	}
	switch {
	case out.Body.Receipt != nil || out.Body.Request != nil:
		return out, nil
	case denied != nil:
		return nil, denied
	}
	return nil, serve.Refuse(http.StatusNotFound, "there is no request %s/%s", in.Sender, in.Name)
}

type postInput struct {
	RawBody []byte `contentType:"application/cloudevents+json"`
}

// postRequest runs cheap checks first, and calls to the API server last.
func (s *Server) postRequest(ctx context.Context, in *postInput) (*huma.StreamResponse, error) {
	c := callOf(ctx)
	mode, err := modeOf(c.header)
	if err != nil {
		return nil, err
	}
	select {
	case s.passing <- struct{}{}:
		defer func() { <-s.passing }()
	default:
		return nil, serve.Refuse(http.StatusTooManyRequests, "%d requests are in progress, which is the limit", parallel).
			After(time.Second)
	}
	if wait := s.users.take(c.user.requester()); wait > 0 {
		return nil, serve.Refuse(http.StatusTooManyRequests, "user %.200s has sent %d requests within a minute, which is the limit",
			c.user.Username, perMinute).After(wait)
	}
	events, err := serve.Read(mode, c.header, in.RawBody)
	if err != nil {
		return nil, serve.Refuse(http.StatusBadRequest, "%w", err)
	}
	request, err := requestOf(events[0], c.user)
	if err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, c.user, request); err != nil {
		return nil, err
	}
	return s.pass(ctx, request, events[0], mode)
}

// modeOf returns the mode of a request, which must be neither compressed nor a batch.
func modeOf(h http.Header) (serve.Mode, error) {
	content := h.Get("Content-Type")
	media, _, err := mime.ParseMediaType(content)
	switch {
	case h.Get("Content-Encoding") != "":
		return 0, serve.Refuse(http.StatusUnsupportedMediaType, "Content-Encoding is %.100q, want none", h.Get("Content-Encoding"))
	case err == nil && media == cloudevent.StructuredJSON:
		return serve.Structured, nil
	case err == nil && media == cloudevent.JSON && h.Get(cloudevent.HeaderPrefix+"specversion") != "":
		return serve.Binary, nil
	}
	return 0, serve.Refuse(http.StatusUnsupportedMediaType, "Content-Type is %.100q; want %s, or %s with the attributes in headers "+
		"that begin with ce-", content, cloudevent.StructuredJSON, cloudevent.JSON)
}

// overrides reports whether the request lifts protections of pods or guards of the cluster.
func overrides(r schemas.Request) bool {
	return len(r.Override) > 0 || r.Maintenance != nil && len(r.Maintenance.Force) > 0
}

func requestOf(e schemas.Event, u user) (schemas.Request, error) {
	if e.Type != schemas.RequestType {
		return schemas.Request{}, serve.Refuse(http.StatusBadRequest, "the event is of type %.100q, want %s",
			e.Type, schemas.RequestType)
	}
	var r schemas.Request
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.DisallowUnknownFields() // it may have been meant to prevent a move
	if err := d.Decode(&r); err != nil {
		return r, serve.Refuse(http.StatusUnprocessableEntity, "%w", err)
	}
	r.Sender, r.Requester = policy.HTTPSender, u.requester()
	if r.Name == "" {
		r.Name = "http-" + strings.ToLower(rand.Text()[:16])
	}
	if !schemas.IsRequestWord(r.Name) {
		return r, serve.Refuse(http.StatusUnprocessableEntity, "name: want 1 to 63 of a-z, 0-9 and -, got %.100q", r.Name)
	}
	return r, nil
}

// pass publishes the request in the trace of its event, waits for the receipt, and returns the response.
func (s *Server) pass(
	ctx context.Context, r schemas.Request, asked schemas.Event, mode serve.Mode,
) (*huma.StreamResponse, error) {
	e, err := schemas.NewEvent(s.Settings.Source("http"), r, time.Now(), schemas.Event{TraceParent: asked.TraceParent})
	if err != nil {
		return nil, err
	}
	if _, err := s.Bus.Publish(ctx, e); err != nil {
		return nil, err
	}
	s.Log.Info("request taken", "request", r.Name, "requester", r.Requester, "action", r.Action, "reason", r.Reason)
	got, err := s.receipt(ctx, e, r)
	if err != nil {
		return nil, err
	}
	code, header := http.StatusAccepted, http.Header{"Rehome-Request": {r.Sender + "/" + r.Name}}
	if got.ID != "" {
		receipt, err := schemas.Decode[schemas.Receipt](got)
		if err != nil {
			return nil, err
		}
		if code = statusOf(receipt); code == http.StatusTooManyRequests {
			header.Set("Retry-After", strconv.Itoa(int(time.Minute.Seconds())))
		}
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		_, w := humago.Unwrap(c)
		maps.Copy(w.Header(), header)
		if got.ID == "" {
			w.WriteHeader(code)
		} else if err := serve.Write(w, code, mode, []schemas.Event{got}); err != nil {
			s.refuse(w, callOf(ctx), err)
		}
	}}, nil
}

// errFound stops the read.
var errFound = errors.New("found the receipt")

// receipt waits for the first receipt for the request in e. It returns the zero Event after the time limit, and also if the bus
// becomes unavailable, because the request is already stored.
func (s *Server) receipt(ctx context.Context, e schemas.Event, r schemas.Request) (schemas.Event, error) {
	within, cancel := context.WithTimeout(ctx, receiptWithin)
	defer cancel()
	var first schemas.Event
	query := bus.Query{
		Channels: []string{schemas.Receipt{Sender: r.Sender, Name: r.Name}.Channel()}, Since: e.Time.Add(-clocks), Follow: true,
	}
	err := s.Bus.Events(within, query, func(got schemas.Event) error {
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
