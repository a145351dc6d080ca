package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// lifeArgs, restartArgs, and failedArgs have the shape of the arguments that result from the params of the older
// version.
type (
	lifeArgs struct {
		LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
		MaxAge        *uint                 `json:"maxPodLifeTimeSeconds,omitzero"`
		States        []string              `json:"states,omitzero"`
	}
	restartArgs struct {
		Threshold int32 `json:"podRestartThreshold,omitzero"`
		Init      bool  `json:"includingInitContainers,omitzero"`
	}
	failedArgs struct {
		MinAge  *uint    `json:"minPodLifetimeSeconds,omitzero"`
		Reasons []string `json:"reasons,omitzero"`
	}
)

func (lifeArgs) Validate() error { return nil }

func (lifeArgs) Due(*corev1.Pod) (time.Time, bool) { return time.Time{}, false }

func (a restartArgs) Validate() error {
	if a.Threshold < 1 {
		return &FieldError{Field: "podRestartThreshold", Value: a.Threshold, Reason: "must be at least 1"}
	}
	return nil
}

func (failedArgs) Validate() error { return nil }

// more are strategies that the older version also has.
func more() []Strategy {
	hour := uint(3600)
	return append(known(),
		Strategy{Name: "PodLifeTime", Point: Deschedule, Scope: schemas.PodKind, NewArgs: func() Args { return &lifeArgs{} }},
		Strategy{Name: "RemovePodsHavingTooManyRestarts", Point: Deschedule, Scope: schemas.PodKind,
			NewArgs: func() Args { return &restartArgs{} }},
		Strategy{Name: "RemoveFailedPods", Point: Deschedule, Scope: schemas.PodKind,
			NewArgs: func() Args { return &failedArgs{MinAge: &hour} }})
}

// withoutFunctions removes the functions from a policy, which cannot be compared, and the presets, which become
// profiles.
func withoutFunctions(p Policy) Policy {
	p.Presets = nil
	for i := range p.Outside {
		p.Outside[i].Strategy.NewArgs = nil
	}
	for i := range p.Profiles {
		for j := range p.Profiles[i].Strategies {
			p.Profiles[i].Strategies[j].NewArgs = nil
		}
	}
	return p
}

// onlyOwn returns the fields in some files of testdata/convert that the descheduler's version does not have.
func onlyOwn(name string) []string {
	switch name {
	case "own":
		return []string{"rate", "limits", "circuitBreakers", "restart", "evictionRequests", "deltas", "signals"}
	case "own-parts":
		return []string{"limits", "circuitBreakers", "restart"}
	case "own-rate":
		return []string{"rate"}
	case "own-functions":
		return []string{"functions"}
	}
	return nil
}

// TestFormatRoundTrip also compares the written file with testdata/convert/CASE.txt.
func TestFormatRoundTrip(t *testing.T) {
	files, err := filepath.Glob("testdata/convert/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %d cases, %v, want at least 4", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			expect.Must(t, err)
			for _, version := range []string{Version, DeschedulerVersion} {
				p, err := Parse(file, data, more())
				expect.Must(t, err)
				written, err := p.Format(version)
				if fields := onlyOwn(name); version == DeschedulerVersion && fields != nil {
					for i, field := range fields {
						fields[i] = field + ": is not part of descheduler/v1alpha2; convert to rehome.dev/v1alpha1"
					}
					want := strings.Join(fields, "\n")
					if err == nil || err.Error() != want || written != nil {
						t.Errorf("got %s and %v, want %s", written, err, want)
					}
					continue
				}
				expect.Must(t, err)
				again, err := Parse("written.yaml", written, more())
				if err != nil {
					t.Fatalf("%v in\n%s", err, written)
				}
				if twice, err := again.Format(version); err != nil || string(twice) != string(written) {
					t.Errorf("written again: %v\n%s\nwant\n%s", err, twice, written)
				}
				if got, want := withoutFunctions(again), withoutFunctions(p); !reflect.DeepEqual(got, want) {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
				if version == Version {
					golden(t, strings.TrimSuffix(file, ".yaml")+".txt", string(written))
				}
			}
		})
	}
}

func FuzzFormat(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, path := range files {
		data, _ := os.ReadFile(path)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		strategies := more()
		if bytes.Contains(data, []byte("presets")) {
			strategies = ten()
		}
		p, err := Parse("policy.yaml", data, strategies)
		if err != nil {
			return
		}
		written, err := p.Format(Version)
		expect.Must(t, err)
		again, err := Parse("written.yaml", written, strategies)
		if err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		if twice, err := again.Format(Version); err != nil || string(twice) != string(written) {
			t.Fatalf("written again: %v\n%s\nwant\n%s", err, twice, written)
		}
		if got, want := withoutFunctions(again), withoutFunctions(p); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v\nwritten:\n%s", got, want, written)
		}
	})
}

func TestFormatUnknownVersion(t *testing.T) {
	const want = `apiVersion: is not known, got "v1"; want rehome.dev/v1alpha1 or descheduler/v1alpha2`
	if data, err := (Policy{}).Format("v1"); err == nil || err.Error() != want || data != nil {
		t.Errorf("got %s and %v, want %s", data, err, want)
	}
}
