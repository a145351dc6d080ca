package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/api/page"
	"github.com/rehome-dev/rehome/api/review"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/status"
)

// Config configures a [Server].
type Config struct {
	// Client reads leases, and creates TokenReviews and SubjectAccessReviews.
	Client kubernetes.Interface
	// Cluster has at least the kinds of [Kinds].
	Cluster *cluster.Cache
	Bus     *bus.Bus
	// Policy returns the policy in force.
	Policy   func() policy.Policy
	Settings settings.Settings
	Log      *slog.Logger
}

// Kinds are the kinds of the cluster that the API reads.
func Kinds() []cluster.Kind {
	return append(append(cluster.WorkloadKinds(), cluster.PlacementKinds()...), cluster.PriorityClasses)
}

// Server serves the API. Use [New] to make one.
type Server struct {
	Config
	reviews *review.Cached
	routes  *http.ServeMux // below /v1
	// passing limits concurrent requests, and users the requests of each user.
	passing chan struct{}
	users   *limiter

	feed             *feed.Feed
	history          *history
	activity         activities
	watches, listens streams
	working          chan struct{}   // limits explanations and simulations at a time
	atWork           *review.Turns   // limits explanations and simulations of each user
	userReads        *review.Turns   // limits other reads of each user
	running          context.Context // ends with Run
	stop             context.CancelFunc

	reading singleflight.Group
	state   snapshot // only reading uses it
}

// New returns a server for a cache that does not run yet. Call [Server.Run] to start it.
func New(c Config) (*Server, error) {
	s := &Server{
		Config: c, reviews: review.NewCached(c.Client, time.Now), routes: http.NewServeMux(), passing: make(chan struct{}, parallel),
		users: &limiter{most: perMinute, over: time.Minute, now: time.Now, asked: map[string][]time.Time{}},
		feed:  feed.New(c.Cluster), history: &history{bus: c.Bus, clients: map[*listener]bool{}, deferred: status.Deferrals{}},
		working: make(chan struct{}, mostWork), atWork: review.NewTurns(1, mostWaitingWork),
		userReads: review.NewTurns(mostUserReads, mostWaitingReads),
		watches:   streams{what: "watch"}, listens: streams{what: "listen to events"},
	}
	s.activity.now.next = make(chan struct{})
	s.running, s.stop = context.WithCancel(context.Background())
	s.register(humago.New(s.routes, config()))
	return s, nil
}

// Run works until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	work, ctx := errgroup.WithContext(ctx)
	for _, task := range []func(context.Context) error{s.feed.Run, s.history.run, s.act} {
		work.Go(func() error { return task(ctx) })
	}
	return work.Wait()
}

// config is the configuration of the generated document. It disables the documentation pages of huma, which load programs from
// other sites.
func config() huma.Config {
	c := huma.DefaultConfig("Rehome", "v1")
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "/v1/openapi", "", "", nil
	c.Info.Description = "State, events, explanations, and requests of Rehome, an event-driven descheduler for Kubernetes."
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[metav1.Duration](), reflect.TypeFor[string]())
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {
		Type: "http", Scheme: "bearer", Description: "A token of the Kubernetes API server. The loopback address needs none.",
	}}
	c.Security = []map[string][]string{{"token": {}}, {}}
	return c
}

// schemaName includes the package in the name of a type of another package, because several types have the same name.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	name := huma.DefaultSchemaNamer(t, hint)
	switch of := path.Base(t.PkgPath()); of {
	case ".", "api", "feed", "status", "huma", "v2":
		return name
	default:
		return strings.ToUpper(of[:1]) + of[1:] + name
	}
}

func (s *Server) register(a huma.API) {
	huma.Register(a, huma.Operation{
		OperationID: "get-state", Method: http.MethodGet, Path: "/v1/state", Summary: "State of Rehome and of the nodes",
		Middlewares: huma.Middlewares{s.inTurn},
	}, answer(s, s.getState))
	s.registerWatch(a)
	s.registerExplanations(a)
	s.registerSimulation(a)
	s.registerEvents(a)
	s.registerRequests(a)
}

// answer returns a handler whose errors are problems.
func answer[I, O any](s *Server, f func(context.Context, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, in)
		if err != nil {
			return nil, s.problem(callOf(ctx), err)
		}
		return out, nil
	}
}

// serve answers a call of a user. Unlike the mux, it answers calls of no route with a problem, too.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, u user) {
	c := newCall(u, r)
	w.Header().Set("Cache-Control", "no-store")
	if _, route := s.routes.Handler(r); route == "" {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, route := s.routes.Handler(other); route != "" {
				allowed = append(allowed, method)
			}
		}
		refusal := serve.Refuse(http.StatusNotFound, "there is no %.200s; /v1/openapi.json lists the paths", r.URL.Path)
		if allowed != nil {
			refusal = serve.Refuse(http.StatusMethodNotAllowed, "want the method %s, got %.20s", strings.Join(allowed, " or "), r.Method).
				With("Allow", strings.Join(allowed, ", "))
		}
		s.refuse(w, c, refusal)
		return
	}
	s.routes.ServeHTTP(w, r.WithContext(withCall(r.Context(), c)))
}

// handler serves the page, and calls of the API with serve.
func handler(serve http.HandlerFunc) http.Handler {
	files := page.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "+
			"base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if isCall(r) {
			serve(w, r)
			return
		}
		files.ServeHTTP(w, r)
	})
}

// isCall reports whether the request is for the API, not for the page.
func isCall(r *http.Request) bool {
	return r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/")
}

const (
	// retryAfter is the Retry-After header while the bus or the API server is unavailable.
	retryAfter = 5 * time.Second
	// mostText is the longest text of a problem, in bytes. It can quote the call.
	mostText = 1000
)

// problem returns the error that huma writes as a problem. The log has the details that clients must not see.
func (s *Server) problem(c call, err error) error {
	if _, known := errors.AsType[huma.StatusError](err); known {
		return err
	}
	var refusal *serve.Refusal
	if !errors.As(err, &refusal) {
		refusal = s.refusalOf(c, err)
	}
	text := strings.ToValidUTF8(refusal.Error(), "\uFFFD")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	return huma.ErrorWithHeaders(huma.NewError(refusal.Status, text), refusal.Header())
}

// refuse writes an error as huma does.
func (s *Server) refuse(w http.ResponseWriter, c call, err error) {
	err = s.problem(c, err)
	if headers, ok := errors.AsType[huma.HeadersError](err); ok {
		maps.Copy(w.Header(), headers.GetHeaders())
	}
	model, _ := errors.AsType[huma.StatusError](err) // each problem has one
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(model.GetStatus())
	_ = json.NewEncoder(w).Encode(model) // a failure means that the client is gone
}

// refusalOf returns the response for an internal error.
func (s *Server) refusalOf(c call, err error) *serve.Refusal {
	switch {
	case errors.Is(err, review.ErrNoToken), errors.Is(err, review.ErrUnknownToken):
		return serve.Refuse(http.StatusUnauthorized, "%w", err).With("WWW-Authenticate", "Bearer")
	case errors.Is(err, review.ErrTooMany):
		return serve.Refuse(http.StatusTooManyRequests, "%w", err).After(time.Second)
	case errors.Is(err, bus.ErrOpen):
		return serve.Refuse(http.StatusConflict, "a request of this name is open")
	case errors.Is(err, schemas.ErrInvalid):
		return serve.Refuse(http.StatusUnprocessableEntity, "%w", err)
	case errors.Is(err, context.Canceled): // the client is gone
		return serve.Refuse(http.StatusServiceUnavailable, "the call was canceled")
	}
	s.Log.Warn("the API cannot answer", "method", c.method, "path", fmt.Sprintf("%.200s", c.path), "user", c.user.Username,
		"error", err)
	return serve.Refuse(http.StatusServiceUnavailable, "not possible now: %w", publicError(err)).After(retryAfter)
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
	return errors.New("see the log of the process")
}
