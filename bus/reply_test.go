package bus_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/bustest"
)

// owned are subjects of streams that roles own.
var owned = []string{
	"$KV.REHOME_LEDGER.clear.all", "$KV.REHOME_MAINTENANCES.node/a", "rehome.intents.RemovePods.default.node.a",
	"rehome.scope.RemovePods.default.node.a", "rehome.request.admin.one", "rehome.verdict.evicted.RemovePods.web.pod-0",
	"rehome.delta.node.taints.a", "rehome.receipt.admin.one", "rehome.maintenance.kernel", "rehome.dead.REHOME_INTENTS.actuator",
}

// TestReplySubject publishes with the key of a program outside and a reply subject that a role owns. The server's
// acknowledgment goes to the reply subject and is not checked against the rights of the key.
func TestReplySubject(t *testing.T) {
	p := listening(t)
	inside := bustest.Connect(t, bus.Options{Server: p.server})
	bustest.SetUp(t, inside, bus.Setup{Strategies: []string{strategy}})
	key, err := nats.NkeyOptionFromSeed(p.options.Socket + ".nk") // of the process with the server
	if err != nil {
		t.Fatal(err)
	}
	admin, err := nats.Connect("", nats.InProcessServer(p.server), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	js, err := jetstream.New(admin)
	if err != nil {
		t.Fatal(err)
	}
	stored := func() map[string]uint64 {
		all := map[string]uint64{}
		for _, subject := range owned {
			name, err := js.StreamNameBySubject(t.Context(), subject)
			if err != nil {
				t.Fatal(err)
			}
			s, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			all[subject] = 0
			info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(subject))
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range info.State.Subjects {
				all[subject] += n
			}
		}
		return all
	}
	before := stored()
	t.Run("a sender's acknowledgment stays in its account", func(t *testing.T) {
		nc := p.bare(t, "sender-batch")
		acks, err := nc.SubscribeSync("_INBOX_sender-batch.>")
		if err != nil {
			t.Fatal(err)
		}
		for i, reply := range append(owned, "_INBOX_sender-batch.last") {
			if err := nc.PublishRequest("rehome.request.batch."+string(rune('a'+i)), reply, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := acks.NextMsg(bustest.Patience); err != nil { // it comes after those of the others
			t.Fatal(err)
		}
		requests, err := js.Stream(t.Context(), bus.StreamRequests)
		if err != nil {
			t.Fatal(err)
		}
		if n := requests.CachedInfo().State.Msgs; n != uint64(len(owned)+1) {
			t.Errorf("%d requests are stored, want %d", n, len(owned)+1)
		}
		if after := stored(); !reflect.DeepEqual(after, before) {
			t.Errorf("the acknowledgments wrote\n%v\nwant\n%v", after, before)
		}
	})
	t.Run("a listener and a function publish nothing", func(t *testing.T) {
		for _, name := range []string{"listener", "function-KeepOffSpot"} {
			nc := p.bare(t, name)
			for _, reply := range owned {
				for _, subject := range append(owned, "rehome.request.batch.z", "$JS.API.STREAM.INFO.REHOME_EVENTS") {
					if err := nc.PublishRequest(subject, reply, []byte("{}")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := nc.FlushTimeout(bustest.Patience); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond) // an acknowledgment would come within a few
		if after := stored(); !reflect.DeepEqual(after, before) {
			t.Errorf("they wrote\n%v\nwant\n%v", after, before)
		}
	})
}
