package credentials_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
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
		followed, forwarded := bustest.Collect(t, r), make(chan string, 64)
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
		followed.Find(t, func(e schemas.Event) bool { return e.ID == v.ID })
		for expect.Receive(t, fmt.Sprintf("the forwarder of server %d gets the verdict", i), forwarded) != v.ID {
		}
		cancel()
		listening.Wait()
	}
}

// threeServers starts a cluster with the configuration of a directory, and returns the URL of each server.
func threeServers(t *testing.T, dir string) (urls []string) {
	t.Helper()
	addresses, err := program.FreeAddresses(6)
	expect.Must(t, err)
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

func verdictOf(t *testing.T) schemas.Event {
	t.Helper()
	v := schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Profile: "default", Strategy: "A",
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "a", Name: "b"}, Node: "n"},
	}
	return schematest.Event(t, "test", v, time.Now(), schemas.Event{})
}
