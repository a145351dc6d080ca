package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/filetest"
	"github.com/rehome-dev/rehome/test/program"
)

// desk is where the commands of a page are typed.
type desk struct {
	t           *testing.T
	dir, rehome string
	environment []string
	ran         []string
}

// newDesk is a folder with a policy, and a rehome with the kubeconfig of a missing cluster.
func newDesk(t *testing.T) *desk {
	t.Helper()
	dir := filetest.ShortDir(t)
	d := &desk{t: t, dir: dir, rehome: expect.Value(t, program.Build)}
	policy := filetest.Read(t, root, "deploy/policy.yaml")
	d.write("policy.yaml", policy)
	d.write("kubeconfig", `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a"}],
		"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}`)
	d.environment = append(os.Environ(), "REHOME_STORE_DIR="+filepath.Join(dir, "store"), "REHOME_HTTP_ADDRESS=", "REHOME_API_LOCAL=",
		"KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	return d
}

func (d *desk) write(name, text string) {
	d.t.Helper()
	filetest.Write(d.t, filepath.Join(d.dir, name), text)
}

// serve starts a NATS server with a configuration.
func (d *desk) serve(config string) {
	d.t.Helper()
	text := config // of a server that is started in another folder, so that its own files are not found from here
	for _, key := range []string{"cert_file", "key_file", "ca_file", "store_dir"} {
		text = strings.ReplaceAll(text, key+`: "`, key+`: "`+d.dir+`/`)
	}
	d.write("nats-server.conf", text)
	bustest.ServeFile(d.t, filepath.Join(d.dir, "nats-server.conf"))
}

// command is a line as a shell would run it: variables before the program are its own.
func (d *desk) command(line string) *exec.Cmd {
	words := strings.Fields(line)
	own := 0
	for !strings.HasPrefix(words[own], "rehome") {
		own++
	}
	c := exec.Command(d.rehome, words[own+1:]...)
	c.Dir, c.Env = d.dir, append(append([]string{}, d.environment...), words[:own]...)
	d.ran = append(d.ran, words[own+1])
	return c
}

// run runs a line until it works: a server that was just started may not have its leader yet.
func (d *desk) run(line string) {
	d.t.Helper()
	for end := time.Now().Add(expect.Patience); ; {
		out, err := d.command(line).CombinedOutput()
		if err == nil && !bytes.Contains(out, []byte("not permitted")) {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("%s: %v\n%s", line, err, out)
		}
		d.ran = d.ran[:len(d.ran)-1]
	}
}

// stay starts a line that does not end by itself.
func (d *desk) stay(line string) {
	d.t.Helper()
	c := d.command(line)
	var out program.Log
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if d.t.Failed() {
			d.t.Logf("%s said:\n%s", line, &out)
		}
	})
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
	d, config := newDesk(t), ""
	for line := range strings.Lines(text) {
		code, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !indented {
			if config != "" {
				d.serve(config)
			}
			config = ""
			continue
		}
		switch first, rest, _ := strings.Cut(code, " "); {
		case first == "export":
			d.environment = append(d.environment, strings.Fields(rest)...)
		case strings.HasPrefix(code, "rehome run "):
			d.environment = append(d.environment, "REHOME_NATS_URL=") // it is another terminal
			d.stay(code)
			d.environment = append(d.environment, "REHOME_LISTEN=", "REHOME_LISTEN_AUTH=", "REHOME_LISTEN_CERT_FILE=", "REHOME_LISTEN_KEY_FILE=")
		case first == "rehome", strings.HasPrefix(first, "REHOME_"):
			d.run(code)
		default:
			config += code + "\n"
		}
	}
	if got, want := fmt.Sprint(d.ran), "[auth setup events status get evaluate run events]"; got != want {
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
