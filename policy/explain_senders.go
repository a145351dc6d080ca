package policy

import (
	"fmt"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// asking says who may ask for what.
func (t *text) asking(r *Requests) {
	switch {
	case r == nil:
		return
	case len(r.Senders) == 0:
		t.line(0, "Nobody may ask for pods to be moved.")
		return
	}
	t.line(0, "Asked for at most %d pods at once, moves pods for", r.MaxPods)
	for _, s := range r.Senders {
		t.item(1, s.inWords())
	}
}

func (s Sender) inWords() string {
	words := []string{s.Name}
	if len(s.Actions) > 0 {
		words = append(words, "only to "+joined(s.Actions))
	}
	if len(s.Namespaces) > 0 {
		words = append(words, "of the namespaces "+joined(s.Namespaces))
	}
	if s.Nodes {
		words = append(words, "whole nodes too")
	}
	if len(s.Override) > 0 {
		words = append(words, "overriding "+strings.ReplaceAll(joined(s.Override), AnyRule, "every rule"))
	}
	return strings.Join(append(words, fmt.Sprintf("%d requests a minute and %d open at once", s.PerMinute, s.Open)), ", ")
}

func joined[T string | schemas.RequestAction](list []T) string {
	var words []string
	for _, w := range list {
		words = append(words, string(w))
	}
	return strings.Join(words, " and ")
}
