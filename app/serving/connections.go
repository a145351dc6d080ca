package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// mostConnections limits the open connections of one address by default. Kubelets, Prometheus, and a few clients need a dozen.
	mostConnections = 256
	// mostHeaderBytes limits the header of a request. Tokens with the groups of a user have some 10 KiB.
	mostHeaderBytes = 64 << 10
	// mostStreams limits the requests in progress on one connection with HTTP/2.
	mostStreams = 32
	// reportedFor is how long /readyz reports that the limit was reached.
	reportedFor = time.Minute
)

// connections limits the open connections of a server. When there is one too many, it closes the one that has waited longest for
// a request, so idle clients, and clients that never complete a header, do not keep others out. If all others have a request in
// progress, that is the new one. A request whose answer is known is no longer in progress: until its body has arrived, its
// connection waits too.
//
// One client, by its IP address, may have a quarter of the connections. Clients behind an ingress or a load balancer that
// replaces their address count as one. Clients at a loopback address or a socket, such as a sidecar and kubectl port-forward,
// share one address, so only the limit of all connections holds for them. See docs/decisions/0020-own-limit-of-connections.md.
// The zero value is ready to use.
type connections struct {
	mu      sync.Mutex
	most    int                       // 0 means mostConnections
	share   int                       // of one client; 0 means a quarter of all
	client  func(net.Conn) netip.Addr // nil means clientOf
	waiting map[net.Conn]uint64       // open connections by their turn; 0 means a request is in progress
	turn    uint64
	closed  uint64
	last    time.Time // when one was closed last
	reached string    // the limit because of which it was closed
}

// clientOf returns the address of a client, or the zero value for a client at a loopback address or a socket.
func clientOf(conn net.Conn) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// changed is the [http.Server.ConnState] of the server.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(map[net.Conn]uint64)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.turn++
		c.waiting[conn] = c.turn
	case http.StateActive:
		c.waiting[conn] = 0
	default:
		delete(c.waiting, conn)
	}
	if state == http.StateNew {
		c.checkClient(conn)
	}
	c.checkAll()
}

// checkClient closes a connection if the client of conn has too many.
func (c *connections) checkClient(conn net.Conn) {
	client := c.client
	if client == nil {
		client = clientOf
	}
	from, own := client(conn), 0
	ofClient := func(o net.Conn) bool { return from.IsValid() && client(o) == from }
	for o := range c.waiting {
		if ofClient(o) {
			own++
		}
	}
	if most := cmp.Or(c.share, c.limit()/4); own > most {
		c.closeOldest(ofClient, fmt.Sprintf("%d connections of one client", most))
	}
}

// checkAll closes a connection if there are too many.
func (c *connections) checkAll() {
	if most := c.limit(); len(c.waiting) > most {
		c.closeOldest(func(net.Conn) bool { return true }, fmt.Sprintf("%d connections", most))
	}
}

// closeOldest closes the one of some connections that has waited longest, because of a limit.
func (c *connections) closeOldest(of func(net.Conn) bool, limit string) {
	var oldest net.Conn
	for o, turn := range c.waiting {
		if turn > 0 && (oldest == nil || turn < c.waiting[oldest]) && of(o) {
			oldest = o
		}
	}
	if oldest == nil { // a connection became active again after it was closed
		return
	}
	delete(c.waiting, oldest)
	c.closed, c.last, c.reached = c.closed+1, time.Now(), limit
	if t, ok := oldest.(*tls.Conn); ok {
		oldest = t.NetConn() // tls.Conn.Close can wait for a client that does not read
	}
	_ = oldest.Close()
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// body is the body of a request.
type body struct {
	io.ReadCloser
	ended bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF // readers return it unwrapped
	return n, err
}

// handler makes the connection of a request wait when its answer is known and its body has not arrived. net/http reads up to
// 256 KiB of the rest before it sends the answer, so that an honest client gets it, and a client that sends no body would keep
// its place until ReadTimeout. HTTP/2 does not read the rest.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(connKey{}).(net.Conn)
		if !ok || r.ProtoMajor != 1 || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			c.answered(conn) // no handler reads the body, and a long answer reads it before the handler ends
			next.ServeHTTP(w, r)
			return
		}
		unread := &body{ReadCloser: r.Body}
		r = r.WithContext(r.Context())
		r.Body = unread
		next.ServeHTTP(w, r)
		if !unread.ended {
			c.answered(conn)
		}
	})
}

// answered makes a connection with a request in progress wait.
func (c *connections) answered(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn, open := c.waiting[conn]; open && turn == 0 {
		c.turn++
		c.waiting[conn] = c.turn
		c.checkAll()
	}
}

// limit returns how many connections may be open.
func (c *connections) limit() int { return cmp.Or(c.most, mostConnections) }

// counts returns how many connections are open, and how many were closed because of the limit.
func (c *connections) counts() (open int, closed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting), c.closed
}

// AllowRequests raises the limit of open connections, if necessary, for n requests at a time on connections of their own. Call it
// before Serve. Clients open some connections in advance, so it allows twice as many. One client, such as the dispatcher, may
// have all.
func (s *Server) AllowRequests(n int) {
	s.connections.most = max(mostConnections, 2*n)
	s.connections.share = s.connections.most
}

// Warning returns an error if the server closed a connection within the last minute because too many were open. It is a [Check].
func (s *Server) Warning(context.Context) error {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	if last := s.connections.last; last.IsZero() || time.Since(last) >= reportedFor {
		return nil
	}
	return fmt.Errorf("%s: at most %s may be open, and some that waited for a request were closed",
		s.variable, s.connections.reached)
}

// Register registers the metrics of the connections, with name as the label server. Without an address it does nothing.
func (s *Server) Register(metrics prometheus.Registerer, name string) error {
	if s.Listener == nil {
		return nil
	}
	labels := prometheus.Labels{"server": name}
	return errors.Join(
		metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rehome_http_connections", ConstLabels: labels,
			Help: "Open HTTP connections. server is status (metrics and probes), api, api-local, or functions.",
		}, func() float64 { open, _ := s.connections.counts(); return float64(open) })),
		metrics.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "rehome_http_connections_closed_total",
			Help: "HTTP connections that were closed because the limit of open connections was reached.", ConstLabels: labels,
		}, func() float64 { _, closed := s.connections.counts(); return float64(closed) })),
	)
}
