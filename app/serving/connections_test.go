package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// flood is more than [mostConnections], as a client opens them that sends no request.
const flood = 500

// open opens connections and begins a request on each. It may be closed already.
func open(t *testing.T, address string, n int, begin string) (all []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", address)
		expect.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, begin)
		all = append(all, c)
	}
	return all
}

// lost counts the connections that the server closes within a time.
func lost(conns []net.Conn, within time.Duration) (n int) {
	end := time.Now().Add(within)
	for _, c := range conns {
		_ = c.SetReadDeadline(end)
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

// headerTimeout replaces the five seconds, which connections that wait for a request must not cost others. It is long enough for a
// busy machine.
const headerTimeout = 15 * time.Second

// get returns the status and the text of an answer on a connection of its own, which must come before the time for a
// header ends.
func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: headerTimeout - time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	r, err := client.Get(url)
	expect.Must(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	expect.Must(t, err)
	return fmt.Sprintf("%d %s", r.StatusCode, text)
}

// figure returns the value of a metric of the status server.
func figure(t *testing.T, metrics, name string) (n int) {
	t.Helper()
	_, after, _ := strings.Cut(metrics, "\n"+name+`{server="status"} `)
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Errorf("metric %s: %v", name, err)
	}
	return n
}

// run runs a server until the test ends.
func run(t *testing.T, s *Server) {
	t.Helper()
	s.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // of handshakes that do not end
	expect.Background(t, s.Serve)
}

func TestConnections(t *testing.T) {
	for _, c := range []struct{ name, tls, begin string }{
		{"idle_ones_keep_no_client_out", settings.TLSOff, ""},
		{"slow_headers_keep_no_client_out", settings.TLSOff, "GET /healthz HTTP/1.1\r\nHost: x\r\n"},
		{"slow_handshakes_keep_no_client_out", settings.TLSSelfSigned, "\x16\x03\x01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := settings.Settings{HTTPAddress: "127.0.0.1:0", HTTPTLS: c.tls, APIAddress: "127.0.0.1:0", APITLS: c.tls}
			web, _, err := ListenForStatus(s, nil, NewMetrics(), slog.New(slog.DiscardHandler))
			expect.Must(t, err)
			web.ReadHeaderTimeout, web.ReadTimeout = headerTimeout, headerTimeout
			run(t, web)
			requests, err := ListenForAPI(s, slog.New(slog.DiscardHandler))
			expect.Must(t, err)
			requests.Handler, requests.ReadHeaderTimeout, requests.ReadTimeout = http.NotFoundHandler(), headerTimeout, headerTimeout
			run(t, requests)
			before := runtime.NumGoroutine()

			began := time.Now()
			conns := append(open(t, web.Listener.Addr().String(), flood, c.begin), open(t, requests.Listener.Addr().String(), flood, c.begin)...)
			if got := get(t, web.URL("/healthz")); got != "200 ok\n" {
				t.Errorf("healthz: got %q, want 200", got)
			}
			if got := get(t, requests.URL("/")); !strings.HasPrefix(got, "404") {
				t.Errorf("requests: got %q, want 404 of the handler", got)
			}
			want := "200 ok\nREHOME_HTTP_ADDRESS: at most 256 connections may be open, and some that waited for a request were closed\n"
			if got := get(t, web.URL("/readyz")); got != want {
				t.Errorf("readyz\ngot  %q\nwant %q", got, want)
			}
			// A goroutine serves each connection, and another one watches it while its request is answered.
			if n, most := runtime.NumGoroutine()-before, 2*2*mostConnections; n > most {
				t.Errorf("%d goroutines more than before, want at most %d", n, most)
			}
			metrics := get(t, web.URL("/metrics"))
			open, closed := figure(t, metrics, "rehome_http_connections"), figure(t, metrics, "rehome_http_connections_closed_total")
			if open < 1 || open > mostConnections || closed < 1 || closed > flood {
				t.Errorf("metrics: %d connections are open and %d were closed, want at most %d and %d", open, closed, mostConnections, flood)
			}
			if c.begin == "" {
				return
			}
			if n := lost(conns, time.Until(began.Add(3*headerTimeout))); n != len(conns) {
				t.Errorf("%d of %d connections were closed, want all after the time for a header", n, len(conns))
			}
		})
	}

	for name, request := range map[string]string{
		"unread_bodies_keep_no_client_out":  "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"unread_chunks_keep_no_client_out":  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"bodies_of_gets_keep_no_client_out": "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"options_keep_no_client_out":        "OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			web, _, err := ListenForStatus(settings.Settings{HTTPAddress: "127.0.0.1:0", HTTPTLS: settings.TLSOff}, nil, NewMetrics(),
				slog.New(slog.DiscardHandler))
			expect.Must(t, err)
			web.ReadHeaderTimeout, web.ReadTimeout = headerTimeout, headerTimeout
			run(t, web)
			open(t, web.Listener.Addr().String(), flood, request)
			if got := get(t, web.URL("/healthz")); got != "200 ok\n" {
				t.Errorf("got %q, want 200", got)
			}
		})
	}

	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused_body_keeps_its_connection/http2=%v", http2), func(t *testing.T) {
			s, err := Listen("REHOME_HTTP_ADDRESS", "127.0.0.1:0", settings.TLS{Mode: settings.TLSSelfSigned}, http2, slog.New(slog.DiscardHandler))
			expect.Must(t, err)
			s.Handler = http.NotFoundHandler()
			run(t, s)
			client := http.Client{Timeout: headerTimeout, Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2, MaxConnsPerHost: 1,
			}}
			defer client.CloseIdleConnections()
			var reused []bool
			for range 3 {
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					GotConn: func(c httptrace.GotConnInfo) { reused = append(reused, c.Reused) },
				})
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL("/"), strings.NewReader(strings.Repeat("x", 100<<10)))
				expect.Must(t, err)
				got, err := client.Do(r)
				expect.Must(t, err)
				_, _ = io.Copy(io.Discard, got.Body)
				got.Body.Close()
				if got.StatusCode != http.StatusNotFound || got.ProtoMajor == 2 != http2 {
					t.Errorf("got %s %s, want 404", got.Proto, got.Status)
				}
			}
			if want := []bool{false, true, true}; !slices.Equal(reused, want) {
				t.Errorf("reused connections: got %v, want %v", reused, want)
			}
		})
	}

	t.Run("one_client_cannot_take_all", func(t *testing.T) {
		s, err := Listen("REHOME_HTTP_ADDRESS", "127.0.0.1:0", settings.TLS{Mode: settings.TLSOff}, false, slog.New(slog.DiscardHandler))
		expect.Must(t, err)
		s.connections.client = func(c net.Conn) netip.Addr { return c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() }
		answer := make(chan struct{})
		var begun sync.WaitGroup
		begun.Add(mostConnections / 4)
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				begun.Done()
				<-answer
			}
		})
		run(t, s)
		defer close(answer)
		const request = "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
		address := s.Listener.Addr().String()
		open(t, address, mostConnections/4, request)
		begun.Wait()
		if n := lost(open(t, address, 10, request), headerTimeout); n != 10 {
			t.Errorf("%d of 10 connections above the share were closed, want all", n)
		}
		want := "REHOME_HTTP_ADDRESS: at most 64 connections of one client may be open, and some that waited for a request were closed"
		if err := s.Warning(t.Context()); err == nil || err.Error() != want {
			t.Errorf("warning\ngot  %v\nwant %s", err, want)
		}
		other := http.Client{Timeout: headerTimeout, Transport: &http.Transport{
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext, DisableKeepAlives: true,
		}}
		got, err := other.Get(s.URL("/"))
		expect.Must(t, err)
		defer got.Body.Close()
		if got.StatusCode != http.StatusOK {
			t.Errorf("another client: got %s, want 200", got.Status)
		}
	})

	for name, most := range map[string]int{"requests_in_progress_are_answered": mostConnections, "more_requests_are_allowed": 600} {
		t.Run(name, func(t *testing.T) {
			s, err := Listen("REHOME_HTTP_ADDRESS", "127.0.0.1:0", settings.TLS{Mode: settings.TLSOff}, false, slog.New(slog.DiscardHandler))
			expect.Must(t, err)
			s.AllowRequests(most / 2)
			var begun sync.WaitGroup
			begun.Add(most)
			answer := make(chan struct{})
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begun.Done()
				<-answer
			})
			run(t, s)
			const request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
			busy := open(t, s.Listener.Addr().String(), most, request)
			begun.Wait()
			if n := lost(open(t, s.Listener.Addr().String(), 10, request), headerTimeout); n != 10 {
				t.Errorf("%d of 10 connections above the limit were closed, want all", n)
			}
			close(answer)
			for _, c := range busy {
				if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200") {
					t.Fatalf("got %.20q, %v, want the answer", got, err)
				}
			}
		})
	}

	t.Run("large_headers_are_refused", func(t *testing.T) {
		s, err := Listen("REHOME_HTTP_ADDRESS", "127.0.0.1:0", settings.TLS{Mode: settings.TLSOff}, false, slog.New(slog.DiscardHandler))
		expect.Must(t, err)
		s.Handler = http.NotFoundHandler()
		run(t, s)
		r, err := http.NewRequest(http.MethodGet, s.URL("/"), nil)
		expect.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", mostHeaderBytes+8<<10))
		answer, err := http.DefaultClient.Do(r)
		expect.Must(t, err)
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %s, want 431", answer.Status)
		}
	})
}

// address is a connection that has only an address.
type address struct {
	net.Conn
	from net.Addr
}

func (a address) RemoteAddr() net.Addr { return a.from }

func TestClientOf(t *testing.T) {
	for name, c := range map[string]struct {
		from net.Addr
		want netip.Addr
	}{
		"pod":                {&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 4000}, netip.MustParseAddr("10.1.2.3")},
		"pod_with_ipv6":      {&net.TCPAddr{IP: net.ParseIP("fd00::3"), Port: 4000}, netip.MustParseAddr("fd00::3")},
		"loopback":           {&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000}, netip.Addr{}},
		"loopback_with_ipv6": {&net.TCPAddr{IP: net.IPv6loopback, Port: 4000}, netip.Addr{}},
		"socket":             {&net.UnixAddr{Name: "@"}, netip.Addr{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clientOf(address{from: c.from}); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
