package cli

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestSetupCreatesConsumersOfPolicy(t *testing.T) {
	servers := bustest.Cluster(t, 3)
	file := filetest.New(t, "policy.yaml", policyDeclaring("KeepOffSpot"))
	out, err := execute(t, "setup", "--nats-url", servers.URL(), "--policy", file)
	expect.Must(t, err)
	golden(t, "setup/setup.txt", out)
	nc, err := nats.Connect(servers.URL())
	expect.Must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	expect.Must(t, err)
	if got, want := consumersOf(t, js), []string{"KeepOffSpot"}; !reflect.DeepEqual(got, want) {
		t.Errorf("consumers of %q, want of %q", got, want)
	}
}

func TestSetupWithUnreadablePolicy(t *testing.T) {
	file := filetest.New(t, "policy.yaml", policyDeclaring("Keep.Off"))
	_, err := execute(t, "setup", "--nats-url", "nats://127.0.0.1:1", "--policy", file)
	want := file + `:5: functions[1].name: cannot be the name of a strategy, got "Keep.Off"; want 1 to 63 letters, digits and hyphens`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// policyDeclaring returns a policy that declares external strategies with these names, and a built-in strategy as external.
func policyDeclaring(names ...string) string {
	text := "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\nfunctions:\n" +
		"- {name: PodLifeTime, nats: {subject: functions.lifetime}}\n"
	for _, name := range names {
		text += "- {name: " + name + ", scope: node, wakes: [node.labels], http: {url: http://a}}\n"
	}
	return text
}

// consumersOf returns the sorted names of the consumers for scopes of external strategies.
func consumersOf(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.StreamScopes)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	expect.Must(t, err)
	var names []string
	list := stream.ConsumerNames(t.Context())
	for name := range list.Name() {
		if !slices.ContainsFunc(functions.Hosted(), func(f functions.Function) bool { return f.Strategy.Name == name }) {
			names = append(names, name)
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
