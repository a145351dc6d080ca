package chart

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"

	"github.com/rehome-dev/rehome/functions"
)

// TestTheChartKnowsEveryStrategy compares its list with that of the program.
func TestTheChartKnowsEveryStrategy(t *testing.T) {
	m := regexp.MustCompile(`(?s)define "rehome.strategies" -\}\}\n(\[.*?\])\n`).FindStringSubmatch(templates(t))
	if m == nil {
		t.Fatal("the chart has no list of strategies")
	}
	var got, want []string
	if err := json.Unmarshal([]byte(m[1]), &got); err != nil {
		t.Fatal(err)
	}
	for _, f := range functions.Hosted() {
		want = append(want, f.Strategy.Name)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
