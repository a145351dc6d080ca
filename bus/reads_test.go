package bus_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus"
)

// TestReadsOfKeys compares the readable streams and subjects of each confined participant's key with docs/security.md.
// TestNoKeyWritesWhatAnotherOwns shows that the servers enforce the rights.
func TestReadsOfKeys(t *testing.T) {
	news := []string{"delta", "intents", "maintenance", "receipt", "verdict"}
	want := map[bus.Role]reads{
		bus.RoleWatcher: {[]string{bus.StreamRequests, bus.StreamEvents}, []string{"request", "verdict"}},
		bus.RoleActuator: {
			[]string{bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamLedger}, []string{"$KV.REHOME_LEDGER.>", "intents"},
		},
		bus.RoleMaintenance: {
			[]string{bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamMaintenances},
			[]string{"$KV.REHOME_MAINTENANCES.>", "request", "verdict"},
		},
		bus.RoleOperator:   {allStreams, []string{"delta", "intents", "maintenance", "receipt", "scope", "verdict"}},
		bus.RoleFunctions:  {streams: []string{bus.StreamScopes, bus.StreamIntents}},
		bus.RoleDispatcher: {streams: []string{bus.StreamScopes, bus.StreamIntents}},
		bus.RoleSender:     {subjects: []string{"receipt", "verdict"}},
		bus.RoleReader:     {[]string{bus.StreamRequests, bus.StreamEvents, bus.StreamLedger, bus.StreamMaintenances}, news},
		bus.RoleAPI:        {[]string{bus.StreamRequests, bus.StreamEvents, bus.StreamLedger, bus.StreamMaintenances}, news},
		bus.RoleListener:   {subjects: news},
		bus.RoleForwarder:  {streams: []string{bus.StreamEvents}},
		bus.RoleFunction:   {subjects: []string{asksOn}},
	}
	roles := []bus.Participant{{Role: bus.RoleWatcher}, {Role: bus.RoleActuator}, {Role: bus.RoleMaintenance}}
	for _, who := range append(confined(), roles...) {
		t.Run(who.String(), func(t *testing.T) {
			rights := bus.RightsOf(who, hosting)
			k, got := key{who, rights.Publish}, reads{}
			for _, stream := range allStreams {
				if slices.ContainsFunc([]string{"STREAM.MSG.GET.", "DIRECT.GET.", "STREAM.SNAPSHOT."}, func(q string) bool { return k.may("$JS.API." + q + stream) }) ||
					slices.ContainsFunc([]string{strategy, "audit", "thief"}, func(name string) bool {
						return k.works(stream, name) || k.may("$JS.API.CONSUMER.CREATE."+stream+"."+name)
					}) {
					got.streams = append(got.streams, stream)
				}
			}
			for _, subject := range rights.Subscribe {
				if noun, is := strings.CutPrefix(subject, "rehome."); is {
					subject, _, _ = strings.Cut(noun, ".")
				}
				if !slices.Contains(got.subjects, subject) && !strings.HasPrefix(subject, "_INBOX_") {
					got.subjects = append(got.subjects, subject)
				}
			}
			slices.Sort(got.subjects)
			if !reflect.DeepEqual(got, want[who.Role]) {
				t.Errorf("%s reads\n%+v\nwant\n%+v", who, got, want[who.Role])
			}
		})
	}
}

// reads are the messages that a key can read: in streams, and live ones by noun.
type reads struct{ streams, subjects []string }
