package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAuthInitKeepsKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	readme := dir + "/README.md says where each file belongs\n"
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"--sender", "batch", "--forwarder", "audit", "--function", "F=functions.f"}, dir + ": 14 keys created, 0 kept; " + readme},
		{[]string{"--sender", "batch", "--forwarder", "audit", "--tls", "nats,127.0.0.1"}, dir + ": 4 keys created, 13 kept; " + readme +
			dir + "/function-F.nk: unused; this participant has no rights any more\n"},
	} {
		out, err := execute(t, append([]string{"auth", "init", dir}, test.arguments...)...)
		if err != nil || out != test.says {
			t.Errorf("auth init %q: got %q, %v; want %q", test.arguments, out, err, test.says)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "server.crt")); err != nil {
		t.Error(err)
	}
}

func TestAuthInitInvalidParticipants(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{dir, "--function", "F"},
			`--function: want NAME=SUBJECT such as KeepOffSpot=functions.keep-off-spot, got "F"`},
		{[]string{dir, "--function", "F=rehome.a"}, "function F: want a subject such as functions.keep-off-spot, " +
			`not of rehome, without wildcards, got "rehome.a"`},
		{[]string{dir, "--tls", "nats:4222"},
			`host "nats:4222": want a name or an address without a port, such as nats.nats.svc`},
	} {
		_, err := execute(t, append([]string{"auth", "init"}, test.arguments...)...)
		if err == nil || err.Error() != test.says {
			t.Errorf("auth init %q: got %v, want %s", test.arguments, err, test.says)
		}
	}
}
