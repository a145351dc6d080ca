package conformance

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// receiver returns a sink made of the client of the SDK. It returns where it is, and the events as the SDK reads them.
func receiver(t *testing.T) (url string, received <-chan event.Event) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewHTTP(cehttp.WithListener(l))
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan event.Event, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.StartReceiver(ctx, func(e event.Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String() + "/", events
}

// TestSDKReceivesForwardedEvents posts the published examples as `rehome forward` does, with an
// extension that Knative adds.
func TestSDKReceivesForwardedEvents(t *testing.T) {
	url, received := receiver(t)
	for name, mode := range map[string]post.Mode{"binary": post.Binary, "structured": post.Structured} {
		c, err := post.New(post.Config{URL: url, Mode: mode, Extensions: map[string]string{"team": "shop"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, example := range schematest.Examples(t) {
			t.Run(name+" "+example.Name, func(t *testing.T) {
				if err := c.Send(t.Context(), example.Event); err != nil {
					t.Fatal(err)
				}
				want := expect.FromJSON[event.Event](t, example.Document)
				want.SetDataSchema("https://rehome.dev/schemas/v1/" + strings.Split(want.Type(), ".")[2] + ".schema.json")
				want.SetExtension("team", "shop")
				select {
				case got := <-received:
					if got, want := text(t, got), text(t, want); got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				case <-time.After(10 * time.Second):
					t.Fatal("it did not come")
				}
			})
		}
	}
}
