package chart

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	yaml "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// TestNATSServerConfiguration has a real server read what the chart gives to the second of three, under names of its
// own, beside keys and certificates that rehome setup writes.
func TestNATSServerConfiguration(t *testing.T) {
	all := rendered(t, "moving", "--values", combinations(t)["keda"])
	set := manifesttest.Typed[appsv1.StatefulSet](t, all.one(t, "StatefulSet", "moving-rehome-nats"))
	conf := manifesttest.Typed[corev1.ConfigMap](t, all.one(t, "ConfigMap", "moving-rehome-nats")).Data["nats.conf"]
	dir := t.TempDir()
	const host = "moving-rehome-nats.rehome.svc"
	if _, err := credentials.Write(dir, credentials.Config{Hosts: []string{host, "*." + host}}); err != nil {
		t.Fatal(err)
	}
	for old, name := range map[string]string{"server.crt": "tls.crt", "server.key": "tls.key"} { // as in the Secret
		if err := os.Rename(filepath.Join(dir, old), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	filetest.Write(t, filepath.Join(dir, "nats.conf"), conf)
	t.Chdir(dir)
	for _, e := range set.Spec.Template.Spec.Containers[0].Env {
		if e.ValueFrom != nil {
			e.Value = "moving-rehome-nats-1"
		}
		t.Setenv(e.Name, e.Value)
	}
	o, err := natsserver.ProcessConfigFile("nats.conf")
	expect.Must(t, err)
	type facts struct {
		Name, Store    string
		Port, Monitor  int
		Cluster        int
		Routes         []string
		Verify, Always bool
		Accounts       []string
	}
	got := facts{
		o.ServerName, o.StoreDir, o.Port, o.HTTPPort, o.Cluster.Port, nil,
		o.TLSConfig.ClientAuth == tls.RequireAndVerifyClientCert, o.SyncAlways, nil,
	}
	for _, a := range o.Accounts {
		got.Accounts = append(got.Accounts, a.Name)
	}
	slices.Sort(got.Accounts)
	for _, r := range o.Routes {
		got.Routes = append(got.Routes, r.String())
	}
	want := facts{"moving-rehome-nats-1", "/data", 4222, 8222, 6222, nil, true, true, []string{
		"REHOME", "REHOME_api", "REHOME_dispatcher", "REHOME_functions", "REHOME_operator", "REHOME_reader",
	}}
	for i := range 3 {
		want.Routes = append(want.Routes, fmt.Sprintf("tls://moving-rehome-nats-%d.%s:6222", i, host))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBusSecrets(t *testing.T) {
	var values struct {
		NATS struct {
			Secrets map[string]string `yaml:"secrets"`
		} `yaml:"nats"`
	}
	if err := yaml.Unmarshal([]byte(filetest.Read(t, chart, "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	var set, want []string
	for name := range values.NATS.Secrets {
		set, want = append(set, "nats.secrets."+name+"=own-"+name), append(want, "own-"+name)
	}
	slices.Sort(want)
	var got []string
	for _, mode := range []string{"mode=all-in-one", "mode=distributed,dispatcher.enabled=true"} {
		all := rendered(t, "rehome", "--set", "nats.enabled=true,requests.enabled=true,"+mode+","+strings.Join(set, ","))
		for _, spec := range all.pods(t) {
			got = append(got, secrets(t, spec)...)
		}
	}
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("mounted: got %q, want %q", got, want)
	}
}
