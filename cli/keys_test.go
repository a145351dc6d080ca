package cli

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

func TestReaderKey(t *testing.T) {
	k := newKnowing(t, "reader")
	actuator := k.as(bus.RoleActuator)
	publishAll(t, actuator, verdictsOf(t, "first")...)
	remembered(t, actuator.Ledger(), breakerOf("api", time.Now().Add(time.Hour)))
	for _, c := range []struct {
		arguments []string
		shows     string
	}{
		{[]string{"events", "--since", "24h"}, "shop/pod-first"}, {[]string{"status"}, "REHOME_EVENTS"}, {[]string{"get", "breakers"}, "worker-1"},
	} {
		out, err := execute(t, c.arguments...)
		if err != nil || !strings.Contains(out, c.shows) {
			t.Errorf("rehome %s: got %v and\n%s\nwant %s in it", strings.Join(c.arguments, " "), err, out, c.shows)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	var out program.Log
	root := newRoot()
	root.SetArgs([]string{"events", "--since", "24h", "--follow"})
	root.SetOut(&out)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	shows := func(what string) {
		t.Helper()
		expect.Eventually(t, "it shows "+what, func() bool { return strings.Contains(out.String(), what) })
	}
	shows("shop/pod-first")
	publishAll(t, actuator, verdictsOf(t, "second")...)
	shows("shop/pod-second")
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("rehome events --follow: %v", err)
	}
}

func TestForwarderKey(t *testing.T) {
	k := newKnowing(t, "setup")
	actuator, setup := k.as(bus.RoleActuator), k.as(bus.RoleSetup)
	publishAll(t, actuator, verdictsOf(t, "first")...)
	out, err := execute(t, "forward", "--add", "--name", "sink", "--type", "verdict", "--since", "24h")
	if err != nil || out != "sink: added\n" {
		t.Fatalf("rehome forward --add: got %v and %q", err, out)
	}
	s, url := newSink(t, nil)
	t.Setenv("REHOME_NATS_NKEY_FILE", filepath.Join(k.dir, "forwarder-sink.nk"))
	stop := forwarding(t, setup, "--to", url)
	publishAll(t, actuator, verdictsOf(t, "second")...)
	done(t, setup)
	stop()
	events, _ := s.take()
	var got []string
	for _, e := range events {
		got = append(got, e.ID)
	}
	slices.Sort(got)
	if want := []string{"first", "second"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the sink has %q, want %q", got, want)
	}
	if _, err := execute(t, "forward", "--add", "--name", "other"); err == nil || !strings.Contains(err.Error(), "authorization") && !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("rehome forward --add with the key of a forwarder: got %v, want that it is not permitted", err)
	}
}
