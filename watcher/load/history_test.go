package load

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// noon is the start time of the tests.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// using returns a usage of cpu and memory.
func using(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
}

// same compares JSON, because equal quantities can differ in memory.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	text := func(v any) string { return string(expect.ToJSON(t, v)) }
	if g, w := text(got), text(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func TestSmoothing(t *testing.T) {
	type samples []corev1.ResourceList // nil means the node is missing
	for _, c := range []struct {
		name    string
		raw     bool
		samples samples
		want    corev1.ResourceList
	}{
		{"first sample", false, samples{using("1", "1Gi")}, using("1", "1Gi")},
		{"second sample", false, samples{using("1", "1000"), using("2", "2000")}, using("1100m", "1100")},
		{"third sample", false, samples{using("1", "1000"), using("2", "2000"), using("2", "2000")}, using("1190m", "1190")},
		{"rounding", false, samples{using("15m", "15"), using("1m", "1")}, using("14m", "14")},
		{"halves round up", false, samples{using("5m", "5"), using("0", "0")}, using("5m", "5")},
		{"smoothing continues from the rounded value", false, samples{using("5m", "5"), using("0", "0"), using("0", "0")}, using("5m", "5")},
		{"cpu below a thousandth rounds up", false, samples{using("1100u", "1"), using("1100u", "1")}, using("2m", "1")},
		{"missing node", false, samples{using("1", "1Gi"), nil}, nil},
		{"missing node returns", false, samples{using("1", "1Gi"), nil, using("2", "2Gi")}, using("2", "2Gi")},
		{"new resource", false, samples{{"cpu": resource.MustParse("1")}, using("2", "2Gi")}, using("1100m", "2Gi")},
		{"no smoothing", true, samples{using("1", "1000"), using("2", "2000")}, using("2", "2000")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h history
			for _, used := range c.samples {
				round := map[string]Sample{"other": {Used: using("9", "9"), Good: noon.Add(time.Second)}}
				if used != nil {
					round["n1"] = Sample{Used: used, Good: noon.Add(time.Second)}
				}
				h = h.next(round, !c.raw)
			}
			same(t, "n1", h.at("n1", noon), c.want)
		})
	}
}

func TestSamplesExpire(t *testing.T) {
	h := history{}.next(map[string]Sample{"n1": {Used: using("1", "1"), Good: noon}}, true)
	for _, c := range []struct {
		name string
		node string
		at   time.Time
		want corev1.ResourceList
	}{
		{"valid", "n1", noon.Add(-time.Nanosecond), using("1", "1")},
		{"just expired", "n1", noon, nil},
		{"long expired", "n1", noon.Add(time.Hour), nil},
		{"unknown node", "n2", noon.Add(-time.Second), nil},
	} {
		t.Run(c.name, func(t *testing.T) { same(t, c.node, h.at(c.node, c.at), c.want) })
	}
}

func TestUsageCopy(t *testing.T) {
	h := history{"n1": {Used: using("1", "1"), Good: noon}}
	h.at("n1", noon.Add(-time.Second))["cpu"] = resource.MustParse("9")
	same(t, "n1", h.at("n1", noon.Add(-time.Second)), using("1", "1"))
}

func TestPodUsageSum(t *testing.T) {
	none := corev1.ResourceList{}
	for _, c := range []struct {
		name       string
		containers []corev1.ResourceList
		want       corev1.ResourceList
	}{
		{"all containers", []corev1.ResourceList{using("1", "1Gi"), using("250m", "1Mi"), using("1m", "1")}, using("1251m", "1074790401")},
		{"no container", nil, nil},
		{"container without usage", []corev1.ResourceList{using("1", "1Gi"), none}, nil},
		{"container without memory", []corev1.ResourceList{{"cpu": resource.MustParse("1")}, using("1", "1Gi")}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { same(t, "sum", sum(c.containers...), c.want) })
	}
}

func TestNodePercentages(t *testing.T) {
	for _, c := range []struct {
		name   string
		series string
		want   map[string]int64
		odd    map[string]string
	}{
		{"fractions become percent", `{"metric":{"instance":"n1","job":"x"},"value":[1,"0.5"]},{"metric":{"instance":"n2"},"value":[1,"1"]}`,
			map[string]int64{"n1": 50, "n2": 100}, nil},
		{"fractions of a percent are cut off", `{"metric":{"instance":"n1"},"value":[1.5,"0.999"]},{"metric":{"instance":"n2"},"value":[1,"0.001"]}`,
			map[string]int64{"n1": 99, "n2": 0}, nil},
		{"out of range", `{"metric":{"instance":"n1"},"value":[1,"-0.01"]},{"metric":{"instance":"n2"},"value":[1,"1.01"]},
			{"metric":{"instance":"n3"},"value":[1,"0"]}`, map[string]int64{"n3": 0},
			map[string]string{"n1": "the value -0.01; want one from 0 to 1", "n2": "the value 1.01; want one from 0 to 1"}},
		{"are numbers", `{"metric":{"instance":"n1"},"value":[1,"NaN"]},{"metric":{"instance":"n2"},"value":[1,"+Inf"]},
			{"metric":{"instance":"n3"},"value":[1,"much"]},{"metric":{"instance":"n4"},"value":[1,0.5]}`, nil,
			map[string]string{"n1": "the value NaN; want one from 0 to 1", "n2": "the value +Inf; want one from 0 to 1",
				"n3": "the value much; want one from 0 to 1", "n4": "a value that is not a string"}},
		{"histogram", `{"metric":{"instance":"n1"},"histogram":[1,{"count":"1"}]}`, nil, map[string]string{"n1": "a histogram instead of a value"}},
		{"no instance label", `{"metric":{"node":"n1"},"value":[1,"0.5"]},{"metric":{},"value":[1,"0.5"]},{"value":[1,"0.5"]}`, nil,
			map[string]string{"": "a value without the label instance, which must be the node name"}},
		{"duplicate", `{"metric":{"instance":"n1","job":"a"},"value":[1,"0.5"]},{"metric":{"instance":"n1","job":"b"},"value":[1,"0.5"]},
			{"metric":{"instance":"n1","job":"c"},"value":[1,"0.5"]},{"metric":{"instance":"n2"},"value":[1,"2"]},{"metric":{"instance":"n2"},"value":[1,"1"]}`, nil,
			map[string]string{"n1": "more than one value", "n2": "more than one value"}},
		{"empty", "", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := vector([]byte(`{"status":"success","data":{"resultType":"vector","result":[`+c.series+`]}}`), 200)
			expect.Must(t, err)
			got, odd := nodePercentages(all)
			if c.want == nil {
				c.want = map[string]int64{}
			}
			if c.odd == nil {
				c.odd = map[string]string{}
			}
			if !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(odd, c.odd) {
				t.Errorf("got  %v %v\nwant %v %v", got, odd, c.want, c.odd)
			}
		})
	}
}
