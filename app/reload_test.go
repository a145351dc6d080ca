package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// reloading is a reloader of a file in a temporary directory, with its results.
type reloading struct {
	*reloader
	t       *testing.T
	dir     string
	applied []string // the nodeSelector of each applied policy
	fail    error    // of apply
	log     bytes.Buffer
}

// selecting returns a policy that its nodeSelector identifies.
func selecting(nodes string) string {
	return "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nnodeSelector: " + nodes + "\n"
}

func newReloading(t *testing.T) *reloading {
	r := &reloading{t: t, dir: t.TempDir()}
	file := filepath.Join(r.dir, "policy.yaml")
	r.write(selecting("first"))
	_, current, err := settings.ReadPolicy(file)
	expect.Must(t, err)
	apply := func(p policy.Policy) error {
		if r.fail == nil {
			r.applied = append(r.applied, p.NodeSelector)
		}
		return r.fail
	}
	r.reloader = newReloader(file, current, apply, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&r.log, nil)))
	return r
}

func (r *reloading) write(text string) {
	r.t.Helper()
	filetest.Write(r.t, filepath.Join(r.dir, "policy.yaml"), text)
}

// looks reads the file some times, and returns the totals of applied and refused policies.
func (r *reloading) looks(times int, applied []string, refused int) {
	r.t.Helper()
	for range times {
		r.look()
	}
	if !reflect.DeepEqual(r.applied, applied) {
		r.t.Errorf("applied %q, want %q", r.applied, applied)
	}
	for result, want := range map[string]int{"applied": len(applied), "refused": refused} {
		if got := testutil.ToFloat64(r.results.WithLabelValues(result)); got != float64(want) {
			r.t.Errorf("%s %v times, want %d", result, got, want)
		}
	}
}

func TestReloadOnContentChange(t *testing.T) {
	r := newReloading(t)
	r.looks(3, nil, 0)
	r.write(selecting("second"))
	r.looks(1, nil, 0) // it may be partly written
	r.looks(3, []string{"second"}, 0)
	r.write(selecting("third")[:50])
	r.looks(1, []string{"second"}, 0)
	r.write(selecting("third"))
	r.looks(2, []string{"second", "third"}, 0)
	r.write(selecting("third"))
	r.looks(3, []string{"second", "third"}, 0)
}

func TestRefusedPolicy(t *testing.T) {
	r := newReloading(t)
	r.write(selecting("'a in ('") + "rates: 1\n")
	r.looks(5, nil, 1)
	var got []string
	for line := range strings.SplitSeq(strings.TrimSpace(r.log.String()), "\n") {
		_, line, _ = strings.Cut(line, "level=")
		got = append(got, strings.ReplaceAll(line, r.dir+"/", ""))
	}
	want := []string{
		`ERROR msg="policy refused; the previous one stays active" problem="policy.yaml:3: nodeSelector: unable to parse requirement: ` +
			`found '', expected: ',', ')' or identifier, got \"a in (\"; write a label selector, such as \"pool=web,!gpu\"" number="1 of 2"`,
		`ERROR msg="policy refused; the previous one stays active" problem="policy.yaml:4: rates: unknown field; did you mean rate?" ` +
			`number="2 of 2"`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	r.write(selecting("first")) // the active one all the time
	r.looks(3, nil, 1)
	r.write(selecting("'a in ('") + "rates: 1\n")
	r.looks(3, nil, 2)
	r.write(selecting("second"))
	r.looks(3, []string{"second"}, 2)
}

func TestPolicyFileTemporarilyMissing(t *testing.T) {
	r := newReloading(t)
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	r.looks(1, nil, 0) // like editors that write another file and rename it
	r.write(selecting("second"))
	r.looks(2, []string{"second"}, 0)
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	r.looks(5, []string{"second"}, 1)
	r.write(selecting("second"))
	r.looks(3, []string{"second"}, 1)
	if !strings.Contains(r.log.String(), "no such file or directory") {
		t.Errorf("the log does not say that the file is away: %s", r.log.String())
	}
}

func TestRejectedReload(t *testing.T) {
	r := newReloading(t)
	r.fail = errors.New("no room")
	r.write(selecting("second"))
	r.looks(3, nil, 1)
	if want := r.file + ": no room"; !strings.Contains(r.log.String(), want) {
		t.Errorf("got %s, want %s in it", r.log.String(), want)
	}
}

// mount puts the text where a mounted ConfigMap has it: policy.yaml links to ..data/policy.yaml, and ..data to the
// directory of one version, which is replaced as a whole.
func mount(t *testing.T, dir, version, text string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		expect.Must(t, err)
	}
	must(os.Mkdir(filepath.Join(dir, version), 0o700))
	must(os.WriteFile(filepath.Join(dir, version, "policy.yaml"), []byte(text), 0o600))
	must(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if _, err := os.Lstat(filepath.Join(dir, "policy.yaml")); err != nil {
		must(os.Symlink("..data/policy.yaml", filepath.Join(dir, "policy.yaml")))
	}
}

func TestReloadFromMountedConfigMap(t *testing.T) {
	r := newReloading(t)
	r.dir = t.TempDir()
	mount(t, r.dir, "..1", selecting("first"))
	r.file = filepath.Join(r.dir, "policy.yaml")
	r.looks(2, nil, 0)
	mount(t, r.dir, "..2", selecting("second"))
	if err := os.RemoveAll(filepath.Join(r.dir, "..1")); err != nil {
		t.Fatal(err)
	}
	r.looks(2, []string{"second"}, 0)
}

func TestPolicyReloadMetric(t *testing.T) {
	r := newReloading(t)
	for _, step := range []struct {
		name, nodes string
		want        float64
	}{
		{"at the start", "first", 1},
		{"one that is wrong", "'a in ('", 0},
		{"the one that is in force is back in the file", "first", 1},
		{"another one that is wrong", "'b in ('", 0},
		{"one that is right", "second", 1},
	} {
		r.write(selecting(step.nodes))
		r.look()
		r.look()
		if got := testutil.ToFloat64(r.good); got != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got, step.want)
		}
	}
}

func TestPolicyPollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.run(ctx) }()
		r.write(selecting("second"))
		time.Sleep(2*reloadInterval - time.Millisecond)
		synctest.Wait()
		applied := func() float64 { return testutil.ToFloat64(r.results.WithLabelValues("applied")) }
		if got := applied(); got != 0 {
			t.Errorf("applied %v policies before the second look", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := applied(); got != 1 {
			t.Errorf("applied %v policies after the second look, want 1", got)
		}
		end()
		if err := <-ended; err != nil {
			t.Errorf("run ended with %v", err)
		}
	})
}
