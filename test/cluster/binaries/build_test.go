package binaries

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestRepeatedBuild(t *testing.T) {
	if _, err := Build(t.Context(), Options{}); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	set, err := Build(t.Context(), Options{Progress: &progress})
	expect.Must(t, err)
	if progress.Len() > 0 {
		t.Errorf("the second build did something: %s", progress.String())
	}
	for _, p := range releases[0].parts() {
		if _, err := os.Stat(set.Path(p.name)); err != nil {
			t.Error(err)
		}
	}
}

func TestBuildWaitCancellation(t *testing.T) {
	var progress bytes.Buffer
	b, err := newBuilder(t.Context(), Options{Dir: t.TempDir(), Progress: &progress})
	expect.Must(t, err)
	unlock, err := b.lock(t.Context())
	expect.Must(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.lock(ctx); err == nil {
		t.Error("two builds have the lock")
	}
	if !strings.Contains(progress.String(), "another process is building") {
		t.Errorf("progress %q does not name the current step", progress.String())
	}
}

func TestStampWithToolchain(t *testing.T) {
	root, err := Root()
	expect.Must(t, err)
	for _, p := range releases[0].parts() {
		one, err := p.stamp(root, "go1")
		expect.Must(t, err)
		other, err := p.stamp(root, "go2")
		expect.Must(t, err)
		if one == other {
			t.Errorf("%s: the stamp does not depend on the toolchain", p.name)
		}
	}
}

func TestReleases(t *testing.T) {
	root, err := Root()
	expect.Must(t, err)
	for _, r := range releases {
		text := filetest.Read(t, root, "test/cluster/binaries", r.module, "go.mod")
		if want := "\tk8s.io/kubernetes " + r.version + " "; !strings.Contains(text, want) {
			t.Errorf("%s/go.mod lacks %q", r.module, want)
		}
		if want := "v" + r.minor + "."; !strings.HasPrefix(r.version, want) {
			t.Errorf("version %s does not begin with %s", r.version, want)
		}
		staging := " v0." + strings.TrimPrefix(r.version, "v1.")
		for line := range strings.Lines(text) {
			if strings.Contains(line, " => ") && !strings.HasSuffix(strings.TrimSpace(line), staging) {
				t.Errorf("%q does not end with%s", strings.TrimSpace(line), staging)
			}
		}
	}
}

func TestChosenRelease(t *testing.T) {
	for _, c := range []struct{ name, value, want, err string }{
		{"the default", "", "v1.36.3", ""},
		{"an older release", "1.35", "v1.35.4", ""},
		{"unknown release", "1.20", "", `REHOME_TEST_KUBERNETES: want one of 1.36, 1.35, 1.37, got "1.20"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(ReleaseVariable, c.value)
			got, err := chosenRelease()
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got.version != c.want || text != c.err {
				t.Errorf("got %q, error %q, want %q, error %q", got.version, text, c.want, c.err)
			}
		})
	}
}
