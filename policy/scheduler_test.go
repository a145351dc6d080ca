package policy

import (
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {score: {enabled: [{name: TaintToleration, weight: 7}]}}
`

func TestScheduler(t *testing.T) {
	file := filetest.New(t, "scheduler.yaml", schedulerConfig)
	ofFile := score.Default()
	ofFile.Weights[score.TaintToleration] = 7
	for _, c := range []struct {
		name, text, error string
		want              *score.Profile
	}{
		{"default", "", "", score.Default()},
		{"least_allocated", "scheduler: {profile: LeastAllocated}", "", score.Default()},
		{"most_allocated", "scheduler: {profile: MostAllocated}", "", score.MostAllocated()},
		{"configuration_in_a_file", "scheduler: {profile: " + file + "}", "", ofFile},
		{"no_such_file", "scheduler: {profile: /no/such/file}", "scheduler.profile: open /no/such/file: no such file or directory", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse(t, start+c.text).Scheduler.Load()
			if !reflect.DeepEqual(got, c.want) || err == nil && c.error != "" || err != nil && err.Error() != c.error {
				t.Errorf("got %+v, %v\nwant %+v, %s", got, err, c.want, c.error)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	const packing = `
profiles:
  - name: pack
    pluginConfig: [{name: HighNodeUtilization, args: {thresholds: {cpu: 20}}}]
    plugins: {balance: {enabled: [HighNodeUtilization]}}
`
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing_enabled", "", nil},
		{"high_utilization_with_least_allocated", packing, []string{"profile pack: HighNodeUtilization empties nodes that the scheduler " +
			"fills again, because it prefers the least allocated nodes; use the scoring strategy MostAllocated in the scheduler, and " +
			"set scheduler.profile"}},
		{"high_utilization_with_most_allocated", "scheduler: {profile: MostAllocated}" + packing, nil},
		{"a_profile_that_cannot_be_read", "scheduler: {profile: /no/such/file}",
			[]string{"scheduler.profile: open /no/such/file: no such file or directory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse("policy.yaml", []byte(start+c.text), ten())
			if got := p.Warnings(); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
}
