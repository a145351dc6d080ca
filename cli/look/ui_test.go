package look

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestForward(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "%s %s %s", r.Host, r.URL, r.Header.Get("Origin"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // as a stream
	}))
	defer pod.Close()
	reached := true
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		if !reached {
			return nil, errors.New("no pod")
		}
		return new(net.Dialer).DialContext(ctx, network, pod.Listener.Addr().String())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var notes bytes.Buffer
	ended := make(chan error)
	go func() { ended <- forward(ctx, l, &http.Transport{DialContext: dial}, &notes) }()
	address := l.Addr().String()
	get := func() *http.Response {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/v1/watch?a=b", nil)
		expect.Must(t, err)
		q.Header.Set("Origin", "http://"+address)
		r, err := http.DefaultClient.Do(q)
		expect.Must(t, err)
		return r
	}
	r := get()
	want := address + " /v1/watch?a=b http://" + address
	text := make([]byte, len(want))
	if _, err := io.ReadFull(r.Body, text); err != nil || string(text) != want {
		t.Errorf("got %q, error %v, want %q", text, err, want)
	}
	reached = false
	r2 := get()
	_ = r2.Body.Close()
	if r2.StatusCode != http.StatusBadGateway {
		t.Errorf("without the pod: got status %d, want 502", r2.StatusCode)
	}
	stop()
	if err := <-ended; err != nil || notes.String() != "no pod\n" {
		t.Errorf("at the end: got error %v and the notes %q, want the note no pod", err, notes.String())
	}
	_ = r.Body.Close()
}
