package filter

import (
	"strconv"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

// FuzzMatches checks that an event that matches a filter is published on exactly one of the subjects of the filter, whatever its
// data is.
func FuzzMatches(f *testing.F) {
	f.Add("verdict.evicted.A.shop.cart", []byte(`{"outcome":"evicted","strategy":"A","intent":{"pod":{"namespace":"shop","name":"cart"},"node":"n"}}`), "shop", "n", "A", "")
	f.Add("delta.node.taints.n", []byte(`{"kind":"node.taints","object":{"kind":"Node","name":"n"}}`), "", "n", "", "")
	f.Add("intents.Maintenance.default.maintenance.m", []byte(`{"strategy":"Maintenance","scope":{"kind":"maintenance","key":"m"},"intents":[null]}`), "", "", "", "m")
	f.Add("scope.A.default.node.n", []byte(`{"kind":7}`), "*", ">", "A", ".")
	f.Fuzz(func(t *testing.T, subject string, data []byte, namespace, node, strategy, maintenance string) {
		e := schemas.Event{ID: "1", Channel: schemas.Prefix + "." + subject, Data: data}
		var w Filter
		for text, list := range map[*[]string]string{&w.Namespaces: namespace, &w.Nodes: node, &w.Strategies: strategy, &w.Maintenances: maintenance} {
			if list != "" {
				*text = []string{list}
			}
		}
		w.Types = []string{nounOf(e.Channel)}
		if w.Check() != nil || !w.Matches(e) {
			return
		}
		// Other programs can publish on a subject that does not match their data; such events may get lost.
		if d, err := schemas.Decode[schemas.Verdict](e); err != nil || d.Channel() != e.Channel {
			return
		}
		n := 0
		for _, s := range w.Channels() {
			if covers(s, e.Channel) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%+v fits %s, which %d of %q cover", w, e.Channel, n, w.Channels())
		}
	})
}

// FuzzParsePod checks that ParsePod returns an error that quotes the text, or the namespace and the name in it.
func FuzzParsePod(f *testing.F) {
	for _, text := range []string{"shop/api-0", "", "/", "api-0", "a/b/c", "*/>", "\xff/\x00", "shop/ "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePod(text)
		switch {
		case err != nil && !strings.Contains(err.Error(), strconv.Quote(text)):
			t.Errorf("the error of %q is %v", text, err)
		case err == nil && p.Namespace+"/"+p.Name != text:
			t.Errorf("%q was read as %+v", text, p)
		case err == nil:
			w := Filter{Pods: []Pod{p}}
			for _, channel := range w.Channels() {
				if strings.ContainsAny(channel, " \t\r\n\x00") || w.Check() == nil && !strings.HasPrefix(channel, schemas.Prefix+".") {
					t.Errorf("events of %q are on the channel %q", text, channel)
				}
			}
		}
	})
}
