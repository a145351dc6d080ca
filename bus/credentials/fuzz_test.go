package credentials

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/conf"

	"github.com/rehome-dev/rehome/bus"
)

// FuzzServerConfig checks that with any names of functions, senders, and forwarders, either Config.check returns an error, or the
// server can read the configuration and finds each user in its account.
func FuzzServerConfig(f *testing.F) {
	f.Add("KeepOffSpot", "functions.keep-off-spot", "ci", "archive")
	f.Add(`a"b`, "functions.a,b", "}", "# x")
	f.Add("a\nb", "functions.{a}", `\x`, "\u00e4")
	f.Add("$JS", "a.b", "*", ">")
	f.Fuzz(func(t *testing.T, function, subject, sender, forwarder string) {
		c := Config{
			Functions:  []bus.Participant{{Role: bus.RoleFunction, Name: function, Subject: subject}},
			Senders:    []bus.Participant{{Role: bus.RoleSender, Name: sender}},
			Forwarders: []bus.Participant{{Role: bus.RoleForwarder, Name: forwarder}},
		}
		if c.check() != nil {
			return
		}
		var users []user
		for i, p := range c.Participants() {
			users = append(users, user{p, "U" + strings.Repeat("A", i), bus.RightsOf(p, c.hosting())})
		}
		parsed, err := conf.Parse(string(serverConfig(users)))
		if err != nil {
			t.Fatalf("the server cannot read the configuration: %v", err)
		}
		keys := 0
		for name, account := range parsed["accounts"].(map[string]any) {
			for _, u := range account.(map[string]any)["users"].([]any) {
				n := len(u.(map[string]any)["nkey"].(string)) - 1
				if n < 0 || n >= len(users) || users[n].Account() != name {
					t.Errorf("user %d is in account %q", n, name)
				}
				keys++
			}
		}
		if keys != len(users) {
			t.Errorf("%d users, want %d", keys, len(users))
		}
	})
}
