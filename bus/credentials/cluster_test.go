package credentials_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/filetest"
	"github.com/rehome-dev/rehome/test/schematest"
)

// TestClusterAccounts connects a sender, a reader, and a forwarder to each of three servers, one of them the leader of the
// streams.
func TestClusterAccounts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, credentials.Config{
		Senders: []bus.Participant{sender("a")}, Forwarders: []bus.Participant{forwarder("0"), forwarder("1"), forwarder("2")},
	})
	urls := threeServers(t, dir)
	connect := func(name, url string) *bus.Bus {
		return bustest.Connect(t, bus.Options{Name: name, URL: url, NKeyFile: filepath.Join(dir, name+".nk")})
	}
	setup := connect("setup", urls[0])
	bustest.SetUp(t, setup, bus.Setup{Replicas: 3})
	actuator := connect("actuator", urls[0])
	for i, url := range urls {
		name := fmt.Sprint(i)
		s, r, f := connect("sender-a", url), connect("reader", url), connect("forwarder-"+name, url)
		if err := setup.AddListener(t.Context(), bus.Listener{Name: name}); err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t, fmt.Sprintf("a request by server %d", i), func() bool {
			return ask(t, s, "a", name) == nil
		})
		followed, forwarded := collect(t, r.Events), make(chan string, 64)
		ctx, cancel := context.WithCancel(t.Context())
		var listening sync.WaitGroup
		listening.Go(func() {
			_ = f.Listen(ctx, bus.Listener{Name: name, Existing: true}, func(_ context.Context, e schemas.Event) error {
				forwarded <- e.ID
				return nil
			})
		})
		v := verdictOf(t)
		expect.Eventually(t, "the verdict is stored", func() bool {
			_, err := actuator.Publish(t.Context(), v)
			return err == nil
		})
		for name, ids := range map[string]<-chan string{"reader": followed, "forwarder": forwarded} {
			for expect.Receive(t, fmt.Sprintf("server %d: the %s gets the verdict", i, name), ids) != v.ID {
			}
		}
		cancel()
		listening.Wait()
	}
}

// threeServers starts a cluster with the configuration of a directory, and returns the URL of each server.
func threeServers(t *testing.T, dir string) (urls []string) {
	t.Helper()
	var listeners []net.Listener
	for range 6 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	var addresses []string
	for _, l := range listeners {
		addresses = append(addresses, l.Addr().String())
		_ = l.Close()
	}
	for i := range 3 {
		config := filepath.Join(dir, fmt.Sprintf("server-%d.conf", i))
		text := fmt.Sprintf("server_name: s%d\nlisten: %q\njetstream { store_dir: %q }\ncluster { name: c, listen: %q, routes: [\"nats://%s\", "+
			"\"nats://%s\", \"nats://%s\"] }\ninclude \"rehome.conf\"\n", i, addresses[i], filepath.Join(dir, "store", fmt.Sprint(i)),
			addresses[3+i], addresses[3], addresses[4], addresses[5])
		filetest.Write(t, config, text)
		bustest.ServeFile(t, config)
		urls = append(urls, "nats://"+addresses[i])
	}
	return urls
}

// collect follows the history until the end of the test.
func collect(t *testing.T, follow func(context.Context, bus.Query, func(schemas.Event) error) error) <-chan string {
	t.Helper()
	ids := make(chan string, 64)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- follow(ctx, bus.Query{Since: time.Unix(1, 0), Follow: true}, func(e schemas.Event) error {
			ids <- e.ID
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ids
}

func verdictOf(t *testing.T) schemas.Event {
	t.Helper()
	v := schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Profile: "default", Strategy: "A",
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "a", Name: "b"}, Node: "n"},
	}
	return schematest.Event(t, "test", v, time.Now(), schemas.Event{})
}
