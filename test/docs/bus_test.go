package docs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// serve starts a NATS server with a configuration, whose files are in the folder of the shell.
func (s *shell) serve(config string) {
	s.t.Helper()
	for _, key := range []string{"cert_file", "key_file", "ca_file", "store_dir"} {
		config = strings.ReplaceAll(config, key+`: "`, key+`: "`+s.dir+`/`)
	}
	file := filepath.Join(s.dir, "nats-server.conf")
	filetest.Write(s.t, file, config)
	bustest.ServeFile(s.t, file)
}

// TestBusSecurityPageCommands runs them in the order of the page, and the server with the
// configuration that stands there, on free ports.
func TestBusSecurityPageCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/bus-security.md"))
	expect.Must(t, err)
	text := string(page)
	for _, port := range []string{":4222", ":4223"} {
		free := expect.Value(t, program.FreeAddress)
		text = strings.ReplaceAll(text, port, free[strings.LastIndex(free, ":"):])
	}
	dir := filetest.ShortDir(t)
	s := shellIn(t, dir, "REHOME_STORE_DIR="+filepath.Join(dir, "store"), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	filetest.Write(t, filepath.Join(dir, "policy.yaml"), filetest.Read(t, root, "deploy/policy.yaml"))
	filetest.Write(t, filepath.Join(dir, "kubeconfig"), `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a"}],
		"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}`)
	config, ran := "", []string(nil)
	for line := range strings.Lines(text) {
		code, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !indented {
			if config != "" {
				s.serve(config)
			}
			config = ""
			continue
		}
		if _, command, is := strings.Cut(" "+code, " rehome "); is {
			ran = append(ran, strings.Fields(command)[0])
		}
		switch first, rest, _ := strings.Cut(code, " "); {
		case first == "export":
			s.environment = append(s.environment, strings.Fields(rest)...)
		case strings.HasPrefix(code, "rehome run "):
			s.environment = append(s.environment, "REHOME_NATS_URL=") // it is another terminal
			out := running(t, s.command(code))
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s said:\n%s", code, out)
				}
			})
			s.environment = append(s.environment, "REHOME_LISTEN=", "REHOME_LISTEN_AUTH=", "REHOME_LISTEN_CERT_FILE=", "REHOME_LISTEN_KEY_FILE=")
		case first == "rehome", strings.HasPrefix(first, "REHOME_"):
			expect.EventuallyWithState(t, code, func() (bool, string) { // a server that was just started may not have its leader yet
				out, err := s.command(code).CombinedOutput()
				return err == nil && !bytes.Contains(out, []byte("not permitted")), fmt.Sprintf("%v\n%s", err, out)
			})
		default:
			config += code + "\n"
		}
	}
	if got, want := fmt.Sprint(ran), "[auth setup events status get evaluate run events]"; got != want {
		t.Errorf("the page has %s, want %s", got, want)
	}
}

// TestBusSecurityPageParticipants compares the table of the page with the files of `rehome auth init`.
func TestBusSecurityPageParticipants(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/bus-security.md"))
	expect.Must(t, err)
	for _, role := range []bus.Role{
		bus.RoleSetup, bus.RoleWatcher, bus.RoleFunctions, bus.RoleDispatcher, bus.RoleActuator, bus.RoleMaintenance, bus.RoleAPI, bus.RoleAll, bus.RoleReader,
		bus.RoleListener, bus.RoleForwarder, bus.RoleOperator, bus.RoleFunction, bus.RoleSender,
	} {
		if !strings.Contains(string(page), "| `"+string(role)+".nk` |") && !strings.Contains(string(page), "| `"+string(role)+"-NAME.nk` |") {
			t.Errorf("the page says nothing about %s", role)
		}
	}
}
