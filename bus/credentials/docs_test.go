package credentials_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

var update = flag.Bool("update", false, "write the page about the rights of each key")

// TestRightsPage compares the page with the table of rights.
func TestRightsPage(t *testing.T) {
	const path = "../../docs/bus-rights.md"
	c := credentials.Config{
		Functions:  []bus.Participant{function("NAME", "SUBJECT")},
		Senders:    []bus.Participant{sender("NAME")},
		Forwarders: []bus.Participant{forwarder("NAME")},
		BuiltIn:    []string{"STRATEGY"},
	}
	var b strings.Builder
	b.WriteString("# The rights of each key\n\nEach key of [the bus](bus-security.md) may publish and subscribe to these subjects, and to no others. A key with " +
		"its own account\nimports them from the account `" + bus.Account + "`. STRATEGY is the name of a strategy; `rehome.conf` has a " +
		"line for each strategy.\n`make generate` writes this page from the table of nouns in `bus/nouns.go`.\n")
	for _, p := range c.Participants() {
		r := bus.RightsOf(p, bus.Hosting{BuiltIn: c.BuiltIn, Outside: []string{"NAME"}, Subjects: []string{"SUBJECT"}})
		fmt.Fprintf(&b, "\n## `%s%s`\n\nAccount: `%s`.\n", p, credentials.SeedSuffix, p.Account())
		if r.Reply {
			b.WriteString("It may answer each message that it receives, once.\n")
		}
		for _, list := range []struct {
			verb     string
			subjects []string
		}{{"Publish", r.Publish}, {"Subscribe", r.Subscribe}} {
			if len(list.subjects) > 0 {
				fmt.Fprintf(&b, "\n%s:\n\n    %s\n", list.verb, strings.Join(list.subjects, "\n    "))
			}
		}
	}
	filetest.Golden(t, path, b.String(), *update) // -update writes it from the table of nouns
}
