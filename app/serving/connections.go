package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
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
// a request, so idle clients, and clients that never complete a header, do not keep others out. If all others have a request in progress,
// that is the new one. See docs/decisions/0020-own-limit-of-connections.md. The zero value is ready to use.
type connections struct {
	mu      sync.Mutex
	most    int                 // 0 means mostConnections
	waiting map[net.Conn]uint64 // open connections by their turn; 0 means a request is in progress
	turn    uint64
	closed  uint64
	last    time.Time // when one was closed last
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
	if len(c.waiting) <= c.limit() {
		return
	}
	var oldest net.Conn
	for o, turn := range c.waiting {
		if turn > 0 && (oldest == nil || turn < c.waiting[oldest]) {
			oldest = o
		}
	}
	if oldest == nil { // a connection became active again after it was closed
		return
	}
	delete(c.waiting, oldest)
	c.closed, c.last = c.closed+1, time.Now()
	if t, ok := oldest.(*tls.Conn); ok {
		oldest = t.NetConn() // tls.Conn.Close can wait for a client that does not read
	}
	_ = oldest.Close()
}

// limit returns how many connections may be open.
func (c *connections) limit() int { return cmp.Or(c.most, mostConnections) }

// counts returns how many connections are open, and how many were closed because of the limit.
func (c *connections) counts() (open int, closed uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting), c.closed
}

// AllowRequests raises the limit of open connections, if necessary, for n requests at a time on connections of their own. Call it before
// Serve. Clients open some connections in advance, so it allows twice as many.
func (s *Server) AllowRequests(n int) { s.connections.most = max(mostConnections, 2*n) }

// Warning returns an error if the server closed a connection within the last minute because too many were open. It is a [Check].
func (s *Server) Warning(context.Context) error {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	if last := s.connections.last; last.IsZero() || time.Since(last) >= reportedFor {
		return nil
	}
	return fmt.Errorf("%s: the limit of open connections is reached, and some that waited for a request were closed: %d",
		s.variable, s.connections.limit())
}

// Register registers the metrics of the connections, with name as the label server. Without an address it does nothing.
func (s *Server) Register(metrics prometheus.Registerer, name string) error {
	if s.Listener == nil {
		return nil
	}
	labels := prometheus.Labels{"server": name}
	return errors.Join(
		metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rehome_http_connections", Help: "Open HTTP connections. server is status (metrics and probes), api, api-local, or functions.", ConstLabels: labels,
		}, func() float64 { open, _ := s.connections.counts(); return float64(open) })),
		metrics.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "rehome_http_connections_closed_total",
			Help: "HTTP connections that were closed because the limit of open connections was reached.", ConstLabels: labels,
		}, func() float64 { _, closed := s.connections.counts(); return float64(closed) })),
	)
}
