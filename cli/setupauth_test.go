package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSetupWritesTheKeysOfThoseItIsToldOfAndKeepsThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	readme := dir + "/README.md says what goes where\n"
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"--sender", "batch", "--forwarder", "audit", "--function", "F=functions.f"}, dir + ": 13 keys made, 0 kept; " + readme},
		{[]string{"--sender", "batch", "--forwarder", "audit", "--tls", "nats,127.0.0.1"}, dir + ": 4 keys made, 12 kept; " + readme +
			dir + "/function-F.nk: it has no rights any more, since it was not asked for\n"},
	} {
		out, err := execute(t, append([]string{"setup", "--auth", dir}, test.arguments...)...)
		if err != nil || out != test.says {
			t.Errorf("setup %q: got %q, %v; want %q", test.arguments, out, err, test.says)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "server.crt")); err != nil {
		t.Error(err)
	}
}

func TestSetupRefusesParticipantsThatCannotBe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"--sender", "batch"}, "--function, --http-function, --sender, --forwarder, --tls and --secrets: want them with --auth DIR, got no --auth"},
		{[]string{"--prefix", "moving"}, `--prefix: want it with --secrets NAMESPACE, got "moving" and no --secrets`},
		{[]string{"--secrets", "rehome"}, "--function, --http-function, --sender, --forwarder, --tls and --secrets: want them with --auth DIR, got no --auth"},
		{[]string{"--auth", dir, "--function", "F"},
			`--function: want NAME=SUBJECT such as KeepOffSpot=functions.keep-off-spot, got "F"`},
		{[]string{"--auth", dir, "--function", "F=rehome.a"}, "--auth: function F: want a subject such as functions.keep-off-spot, " +
			`not of rehome, without wildcards, got "rehome.a"`},
		{[]string{"--auth", dir, "--tls", "nats:4222"},
			`--auth: host "nats:4222": want a name or an address without a port, such as nats.nats.svc`},
	} {
		_, err := execute(t, append([]string{"setup"}, test.arguments...)...)
		if err == nil || err.Error() != test.says {
			t.Errorf("setup %q: got %v, want %s", test.arguments, err, test.says)
		}
	}
}
