package page

import (
	"os"
	"strings"
	"testing"
)

// axeFile is the program of axe-core, which `make browser` fetches.
const axeFile = "../../.build/tools/axe.min.js"

// violation is a rule of accessibility that the page breaks.
type violation struct {
	ID    string   `json:"id"`
	Nodes []string `json:"nodes"`
	Help  string   `json:"help"`
}

// accessible fails for each rule of axe-core that the view breaks.
func (b *browser) accessible(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(axeFile)
	if err != nil {
		t.Fatalf("the test of accessibility needs axe-core; fetch it with `make browser`: %v", err)
	}
	if !get[bool](b, "typeof axe === 'object'") {
		b.run(string(program))
	}
	found := get[[]violation](b, `axe.run().then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.map((n) => n.html)})))`)
	for _, v := range found {
		t.Errorf("%s: %s:\n  %s", v.ID, v.Help, strings.Join(v.Nodes, "\n  "))
	}
}
