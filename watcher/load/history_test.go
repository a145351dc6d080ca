package load

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// noon is when the tests begin.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// using is a usage of cpu and memory.
func using(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
}

// same compares what two values are written as, since one quantity can be held in several ways.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	text := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if g, w := text(got), text(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func TestSamplesOfANodeAreSmoothed(t *testing.T) {
	type samples []corev1.ResourceList // nil: the node is not in the answer
	for _, c := range []struct {
		name    string
		raw     bool
		samples samples
		want    corev1.ResourceList
	}{
		{"the first counts as it is", false, samples{using("1", "1Gi")}, using("1", "1Gi")},
		{"a further one counts a tenth", false, samples{using("1", "1000"), using("2", "2000")}, using("1100m", "1100")},
		{"again and again", false, samples{using("1", "1000"), using("2", "2000"), using("2", "2000")}, using("1190m", "1190")},
		{"cpu is rounded to thousandths, memory to bytes", false, samples{using("15m", "15"), using("1m", "1")}, using("14m", "14")},
		{"halves are rounded up", false, samples{using("5m", "5"), using("0", "0")}, using("5m", "5")},
		{"and a smoothed figure goes on from the rounded one", false, samples{using("5m", "5"), using("0", "0"), using("0", "0")}, using("5m", "5")},
		{"what cpu is finer than thousandths is rounded up", false, samples{using("1100u", "1"), using("1100u", "1")}, using("2m", "1")},
		{"a node that is missing is not known", false, samples{using("1", "1Gi"), nil}, nil},
		{"and begins anew when it comes back", false, samples{using("1", "1Gi"), nil, using("2", "2Gi")}, using("2", "2Gi")},
		{"a resource that is new counts as it is", false, samples{{"cpu": resource.MustParse("1")}, using("2", "2Gi")}, using("1100m", "2Gi")},
		{"nothing is smoothed that is not to be", true, samples{using("1", "1000"), using("2", "2000")}, using("2", "2000")},
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

func TestASampleThatIsTooOldDoesNotCount(t *testing.T) {
	h := history{}.next(map[string]Sample{"n1": {Used: using("1", "1"), Good: noon}}, true)
	for _, c := range []struct {
		name string
		node string
		at   time.Time
		want corev1.ResourceList
	}{
		{"before its time is over it counts", "n1", noon.Add(-time.Nanosecond), using("1", "1")},
		{"when its time is over it does not", "n1", noon, nil},
		{"nor after it", "n1", noon.Add(time.Hour), nil},
		{"a node without a sample is not known", "n2", noon.Add(-time.Second), nil},
	} {
		t.Run(c.name, func(t *testing.T) { same(t, c.node, h.at(c.node, c.at), c.want) })
	}
}

func TestAUsageThatWasHandedOutMayBeChanged(t *testing.T) {
	h := history{"n1": {Used: using("1", "1"), Good: noon}}
	h.at("n1", noon.Add(-time.Second))["cpu"] = resource.MustParse("9")
	same(t, "n1", h.at("n1", noon.Add(-time.Second)), using("1", "1"))
}

func TestThePodsUsageIsTheSumOfItsContainers(t *testing.T) {
	none := corev1.ResourceList{}
	for _, c := range []struct {
		name       string
		containers []corev1.ResourceList
		want       corev1.ResourceList
	}{
		{"of all of them", []corev1.ResourceList{using("1", "1Gi"), using("250m", "1Mi"), using("1m", "1")}, using("1251m", "1074790401")},
		{"without one there is none", nil, nil},
		{"without the figures of one there is none", []corev1.ResourceList{using("1", "1Gi"), none}, nil},
		{"whichever it is", []corev1.ResourceList{{"cpu": resource.MustParse("1")}, using("1", "1Gi")}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { same(t, "sum", sum(c.containers...), c.want) })
	}
}

func TestTheSharesOfAVector(t *testing.T) {
	for _, c := range []struct {
		name   string
		series string
		want   map[string]int64
		odd    map[string]string
	}{
		{"are percentages by instance", `{"metric":{"instance":"n1","job":"x"},"value":[1,"0.5"]},{"metric":{"instance":"n2"},"value":[1,"1"]}`,
			map[string]int64{"n1": 50, "n2": 100}, nil},
		{"are cut off", `{"metric":{"instance":"n1"},"value":[1.5,"0.999"]},{"metric":{"instance":"n2"},"value":[1,"0.001"]}`,
			map[string]int64{"n1": 99, "n2": 0}, nil},
		{"are 0 or more and 1 or less", `{"metric":{"instance":"n1"},"value":[1,"-0.01"]},{"metric":{"instance":"n2"},"value":[1,"1.01"]},
			{"metric":{"instance":"n3"},"value":[1,"0"]}`, map[string]int64{"n3": 0},
			map[string]string{"n1": "the value -0.01; want one from 0 to 1", "n2": "the value 1.01; want one from 0 to 1"}},
		{"are numbers", `{"metric":{"instance":"n1"},"value":[1,"NaN"]},{"metric":{"instance":"n2"},"value":[1,"+Inf"]},
			{"metric":{"instance":"n3"},"value":[1,"much"]},{"metric":{"instance":"n4"},"value":[1,0.5]}`, nil,
			map[string]string{"n1": "the value NaN; want one from 0 to 1", "n2": "the value +Inf; want one from 0 to 1",
				"n3": "the value much; want one from 0 to 1", "n4": "a value that is no text"}},
		{"are no histograms", `{"metric":{"instance":"n1"},"histogram":[1,{"count":"1"}]}`, nil, map[string]string{"n1": "no single figure"}},
		{"have the name of a node", `{"metric":{"node":"n1"},"value":[1,"0.5"]},{"metric":{},"value":[1,"0.5"]},{"value":[1,"0.5"]}`, nil,
			map[string]string{"": "a figure without the label instance, which has to be the name of the node"}},
		{"have it once", `{"metric":{"instance":"n1","job":"a"},"value":[1,"0.5"]},{"metric":{"instance":"n1","job":"b"},"value":[1,"0.5"]},
			{"metric":{"instance":"n1","job":"c"},"value":[1,"0.5"]},{"metric":{"instance":"n2"},"value":[1,"2"]},{"metric":{"instance":"n2"},"value":[1,"1"]}`, nil,
			map[string]string{"n1": "more than one figure", "n2": "more than one figure"}},
		{"are none of nothing", "", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := vector([]byte(`{"status":"success","data":{"resultType":"vector","result":[`+c.series+`]}}`), 200)
			if err != nil {
				t.Fatal(err)
			}
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
