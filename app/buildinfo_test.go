package app

import (
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestBuildInfoMetric(t *testing.T) {
	families, err := serving.NewMetrics().Gather()
	expect.Must(t, err)
	got := map[string][]string{}
	for _, f := range families {
		if f.GetName() != "rehome_build_info" && f.GetName() != "descheduler_build_info" {
			continue
		}
		if f.GetType().String() != "GAUGE" || f.Metric[0].Gauge.GetValue() != 1 {
			t.Errorf("%s: got %v, want a gauge that is 1", f.GetName(), f)
		}
		for _, l := range f.Metric[0].Label {
			got[f.GetName()] = append(got[f.GetName()], l.GetName())
		}
	}
	want := map[string][]string{
		"rehome_build_info":      {"goversion", "revision", "version"},
		"descheduler_build_info": {"AppVersion", "DeschedulerVersion", "GitBranch", "GitSha1", "GoVersion"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
