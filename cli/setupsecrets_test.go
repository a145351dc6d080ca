package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// given is a directory with existing keys and certificates of all participants.
func given(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "auth")
	out, err := execute(t, "auth", "init", dir, "--sender", "batch", "--forwarder", "audit", "--function", "KeepOff=functions.keep-off", "--tls", "nats")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// secretText returns the expected text of a Secret with the content of the files, by their names in the Secret, in order.
func secretText(t *testing.T, dir, name string, files ...[2]string) string {
	t.Helper()
	text := "apiVersion: v1\ndata:\n"
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f[1]))
		expect.Must(t, err)
		text += "  " + f[0] + ": " + base64.StdEncoding.EncodeToString(content) + "\n"
	}
	return text + `kind: Secret
metadata:
  labels:
    app.kubernetes.io/component: nats
    app.kubernetes.io/name: rehome
    app.kubernetes.io/part-of: rehome
  name: ` + name + `
  namespace: rehome-test
type: Opaque
`
}

func TestAuthSecrets(t *testing.T) {
	dir := given(t)
	want := []string{secretText(t, dir, "rehome-nats-server",
		[2]string{"ca.crt", "ca.crt"}, [2]string{"rehome.conf", "rehome.conf"},
		[2]string{"tls.crt", "server.crt"}, [2]string{"tls.key", "server.key"})}
	for _, p := range [][2]string{
		{"setup", "setup"}, {"watcher", "watcher"}, {"functions", "functions"}, {"dispatcher", "dispatcher"},
		{"actuator", "actuator"}, {"maintenance", "maintenance"}, {"api", "api"}, {"rehome", "rehome"}, {"reader", "reader"}, {"listener", "listener"},
		{"operator", "operator"}, {"function-keepoff", "function-KeepOff"}, {"sender-batch", "sender-batch"}, {"forwarder-audit", "forwarder-audit"},
	} {
		want = append(want, secretText(t, dir, "rehome-nats-"+p[0], [2]string{"ca.crt", "ca.crt"}, [2]string{"nkey", p[1] + ".nk"},
			[2]string{"tls.crt", "client.crt"}, [2]string{"tls.key", "client.key"}))
	}
	arguments := []string{"auth", "secrets", dir, "-n", "rehome-test", "--sender", "batch", "--forwarder", "audit", "--function", "KeepOff=functions.keep-off"}
	for _, time := range []string{"first", "second"} {
		out, notes, err := fed(t, "", arguments...)
		if err != nil || out != strings.Join(want, "---\n") {
			t.Errorf("the %s time: got error %v and\n%s\nwant\n%s", time, err, out, strings.Join(want, "---\n"))
		}
		if says := dir + ": no key created, 14 kept; " + dir + "/README.md says where each file belongs\n"; notes != says {
			t.Errorf("the %s time, standard error: got %q, want %q", time, notes, says)
		}
	}
}

func TestAuthSecretsPrefix(t *testing.T) {
	dir := given(t)
	arguments := []string{"auth", "secrets", dir, "-n", "rehome-test"}
	plain, _, err := fed(t, "", arguments...)
	expect.Must(t, err)
	prefixed, _, err := fed(t, "", append(arguments, "--prefix", "moving-rehome-nats")...)
	if want := strings.ReplaceAll(plain, "name: rehome-nats-", "name: moving-rehome-nats-"); err != nil || prefixed != want {
		t.Errorf("got error %v and\n%s\nwant\n%s", err, prefixed, want)
	}
}

func TestSecretsOmitAuthorityKey(t *testing.T) {
	dir := given(t)
	out, _, err := fed(t, "", "auth", "secrets", dir, "-n", "rehome-test")
	expect.Must(t, err)
	key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	expect.Must(t, err)
	if strings.Contains(out, base64.StdEncoding.EncodeToString(key)) {
		t.Error("ca.key is in a Secret")
	}
}

func TestAuthSecretsInvalidNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	long := strings.Repeat("a", 250)
	tls := []string{"--tls", "nats"}
	for name, test := range map[string]struct {
		arguments []string
		says      string
	}{
		"a namespace with a capital": {append(tls, "-n", "Rehome"),
			`want the name of a namespace such as rehome, got "Rehome"`},
		"a namespace that is a path": {append(tls, "-n", "a/b"),
			`want the name of a namespace such as rehome, got "a/b"`},
		"two senders that Kubernetes would call the same": {append(tls, "-n", "rehome", "--sender", "a.b", "--sender", "A-b"),
			"sender-a_b and sender-A-b: want names that differ in letters and digits, got Secret rehome-nats-sender-a-b for both"},
		"a sender that ends in a sign": {append(tls, "-n", "rehome", "--sender", "a."),
			`sender a.: want a name that can be the end of the name of a Secret, got "rehome-nats-sender-a-": `},
		"a sender with a name that is too long": {append(tls, "-n", "rehome", "--sender", long),
			"sender " + long + ": want a name that can be the end of the name of a Secret, got "},
		"a prefix with a capital": {append(tls, "-n", "rehome", "--prefix", "Moving"),
			`--prefix: want the beginning of a name of a Secret, such as rehome-nats, got "Moving"`},
		"no prefix": {append(tls, "-n", "rehome", "--prefix", ""),
			`--prefix: want the beginning of a name of a Secret, such as rehome-nats, got ""`},
		"no certificates under another name": {[]string{"-n", "prod", "--prefix", "moving-nats"}, fmt.Sprintf("no certificates: "+
			"%s has no ca.crt, server.crt, server.key, client.crt, client.key: want those, or --tls with the names of the servers, such as "+
			"--tls 'moving-nats.prod.svc,*.moving-nats.prod.svc'", dir)},
		"no certificates": {[]string{"-n", "prod"}, fmt.Sprintf("no certificates: %s has no ca.crt, server.crt, server.key, "+
			"client.crt, client.key: want those, or --tls with the names of the servers, such as "+
			"--tls 'rehome-nats.prod.svc,*.rehome-nats.prod.svc'", dir)},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := fed(t, "", append([]string{"auth", "secrets", dir}, test.arguments...)...)
			if err == nil || !strings.HasPrefix(err.Error(), test.says) || out != "" {
				t.Errorf("got %q and %v, want %s", out, err, test.says)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory: %v, want that there is none", err)
			}
		})
	}
}
