package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
)

// pipes listens for connections without a buffer, so that a server notices a slow client at once.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowWatch has a client that reads one message a second while ten are sent, for a minute.
func TestSlowWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache, err := cluster.NewOffline(Kinds()...)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Client: client, Cluster: cache, Policy: func() policy.Policy { return policy.Policy{} }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		listener := make(pipes)
		server := &http.Server{Handler: s.Operator()}
		go func() { ended <- s.feed.Run(ctx) }()
		go func() { ended <- server.Serve(listener) }()
		own, theirs := net.Pipe()
		listener <- theirs
		defer func() {
			_ = own.Close()
			_ = server.Close()
			stop()
			<-ended
			<-ended
		}()
		request, err := http.NewRequest(http.MethodGet, "http://localhost/v1/watch", nil)
		if err == nil {
			err = request.Write(own)
		}
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(own), request) //nolint:bodyclose // to close it would read the rest of the stream
		if err != nil {
			t.Fatal(err)
		}
		messages := bufio.NewReader(response.Body)
		// read returns the next message. It skips comments.
		read := func() (event, data string) {
			for event == "" || data == "" {
				line, err := messages.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				switch name {
				case "event":
					event = value
				case "data":
					data = value
				}
			}
			return event, data
		}
		for event := ""; event != "ready"; {
			event, _ = read()
		}
		const pods = 600
		go func() {
			for i := range pods {
				name := fmt.Sprint("pod-", i)
				if err := cache.Set(&corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "n1"},
				}); err != nil {
					t.Error(err)
				}
				time.Sleep(coalesced)
			}
		}()
		var order []string // of the messages but pods
		known := map[string]bool{}
		for fresh := false; !fresh || len(known) < pods; {
			event, data := read()
			switch event {
			case "pods":
				var changes struct{ Rows []feed.PodRow }
				if err := json.Unmarshal([]byte(data), &changes); err != nil {
					t.Fatal(err)
				}
				for _, row := range changes.Rows {
					known[row.Name] = true
				}
			case "missed":
				order = append(order, event+" "+data)
			default:
				order = append(order, event)
			}
			switch event {
			case "reset":
				clear(known)
			case "ready":
				fresh = true
			}
			time.Sleep(time.Second)
		}
		want := `[missed {"reason":"the client was too slow"} reset ready]`
		if got := fmt.Sprint(order); got != want || len(known) != pods {
			t.Errorf("got %s and %d pods, want %s and %d pods", got, len(known), want, pods)
		}
	})
}

// coalesced is the time between two messages of a feed.
const coalesced = 110 * time.Millisecond
