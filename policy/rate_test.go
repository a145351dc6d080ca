package policy

import (
	"reflect"
	"testing"
)

func TestNamespaceRate(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Rate
	}{
		{"none by default", "rate: {burst: 3}", Rate{EvictionsPerSecond: 10, Burst: 3}},
		{"null means no rate", "rate: {perNamespace: null}", DefaultRate()},
		{"both parts", "rate: {perNamespace: {evictionsPerSecond: 0.5, burst: 1}}",
			Rate{EvictionsPerSecond: 10, Burst: 10, PerNamespace: &NamespaceRate{EvictionsPerSecond: 0.5, Burst: 1}}},
		{"a part keeps the default of the rest, whatever the rate of all is",
			"rate: {evictionsPerSecond: 1, burst: 1, perNamespace: {burst: 5}}",
			Rate{EvictionsPerSecond: 1, Burst: 1, PerNamespace: &NamespaceRate{EvictionsPerSecond: 10, Burst: 5}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parse(t, start+c.text).Rate; !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}
