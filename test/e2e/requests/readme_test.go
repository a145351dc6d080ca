package requests

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// command is a line of a Markdown code block that a user would type: make or rehome, without the comment.
var command = regexp.MustCompile(`(?m)^    ((?:make|bin/rehome|rehome) [^#\n]*)`)

// TestReadmeCommands runs the rehome commands of the README unchanged against the control plane, and checks that
// the targets of its make commands exist.
func TestReadmeCommands(t *testing.T) {
	text := filetest.Read(t, "../../../README.md")
	makefile, err := os.ReadFile("../../../Makefile")
	expect.Must(t, err)
	var ran []string
	s := scene.New(t, 2)
	dir := filetest.ShortDir(t)
	for _, match := range command.FindAllStringSubmatch(text, -1) {
		words := strings.Fields(match[1])
		if words[0] == "make" {
			if !regexp.MustCompile(`(?m)^` + words[1] + `:.*## `).Match(makefile) {
				t.Errorf("%s: the Makefile has no such target", match[1])
			}
			continue
		}
		ran = append(ran, strings.Join(words[1:], " "))
		switch words[1] {
		case "run":
			policy := words[len(words)-1]
			p := s.Start(append(words[1:len(words)-1:len(words)-1], "../../../"+policy), "REHOME_STORE_DIR="+dir)
			p.WaitReady()
		case "events":
			p := s.Start(words[1:], "REHOME_STORE_DIR="+dir)
			s.AddDeployment("api", 1, scene.OnNode(s.Nodes[0]))
			s.Taint(s.Nodes[0], "dedicated")
			tainted := time.Now()
			p.Eventually("the dry run's verdict is shown", func() (bool, string) {
				if time.Since(tainted) > 5*time.Second { // rehome was not following yet
					s.Untaint(s.Nodes[0])
					s.Taint(s.Nodes[0], "dedicated")
					tainted = time.Now()
				}
				return strings.Contains(p.Log.String(), "evicted (dry run) from "+s.Nodes[0]), p.Log.String()
			})
			if code := p.Stop(); code != 0 {
				t.Errorf("%s: exit code %d after SIGTERM, want 0", match[1], code)
			}
		case "status", "get":
			want := map[string]string{"status": "no move in flight, no workload circuit breaker is open, cluster circuit breaker closed\n", "get": "No resources found.\n"}
			got := s.Run(words[1:], "REHOME_STORE_DIR="+dir)
			if got.Code != 0 || !strings.HasPrefix(got.Stdout, want[words[1]]) {
				t.Errorf("%s: %s", match[1], got)
			}
		case "explain":
			pod := s.PodsOf("api")[0].Name
			got := s.Run([]string{"explain", "pod", pod, "-n", s.Namespace}, "REHOME_STORE_DIR="+dir)
			if got.Code != 0 || !strings.HasPrefix(got.Stdout, "pod "+s.Namespace+"/"+pod+" is on "+s.Nodes[0]) ||
				!strings.Contains(got.Stdout, "evicted (dry run)") {
				t.Errorf("%s: %s", match[1], got)
			}
		case "simulate":
			for i, word := range words {
				if strings.Contains(word, "/") && i > 0 {
					words[i] = "../../../" + word
				}
			}
			if got := s.Run(words[1:]); got.Code != 0 {
				t.Errorf("%s: %s", match[1], got)
			}
		default:
			t.Errorf("%s: this test does not know how to run it", match[1])
		}
	}
	want := []string{
		"run --dry-run --policy deploy/policy.yaml", "events --follow", "status", "explain pod POD -n NAMESPACE", "get breakers",
		"simulate --policy deploy/policy.yaml --objects docs/examples/objects.yaml",
	}
	if !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	for _, inline := range []string{"--help", "settings"} {
		if !strings.Contains(text, "`rehome "+inline+"`") {
			t.Errorf("the README does not name `rehome %s`", inline)
		}
		if out, err := exec.CommandContext(t.Context(), s.ControlPlane.Binary, inline).CombinedOutput(); err != nil {
			t.Errorf("rehome %s: %v\n%s", inline, err, out)
		}
	}
}
