package notify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// group collects events that become one notification.
type group struct {
	kind         Kind
	n            Notification // its lists and texts are empty until notification
	first, last  time.Time    // when the events were added
	lines        map[string]*line
	nodes        map[string]bool
	namespaces   map[string]bool
	strategies   map[string]bool
	order        int // of the next line
	requestTitle string
}

// line is a detail, and the pods that it is about.
type line struct {
	text  string // without the pods
	pods  []string
	count int
	rank  int // problems first
	order int
}

// shownPods is the number of pods in a line.
const shownPods = 3

func newGroup(kind Kind, now time.Time) *group {
	return &group{
		kind: kind, first: now, lines: map[string]*line{}, nodes: map[string]bool{}, namespaces: map[string]bool{},
		strategies: map[string]bool{},
	}
}

// add notes an event of this time and cluster.
func (g *group) add(e schemas.Event, now time.Time) {
	if g.n.Began.IsZero() || e.Time.Before(g.n.Began) {
		g.n.Began = e.Time.UTC()
	}
	if e.Time.After(g.n.Ended) {
		g.n.Ended = e.Time.UTC()
	}
	g.n.Cluster = cmp.Or(g.n.Cluster, clusterOf(e.Source))
	g.last = now
}

// clusterOf returns the name of the cluster in the source of an event.
func clusterOf(source string) string {
	rest, _ := strings.CutPrefix(source, "/clusters/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// say adds a detail about pods. Details with the same text become one line.
func (g *group) say(rank int, text string, pods ...string) {
	l := g.lines[text]
	if l == nil {
		if len(g.lines) >= mostLines {
			g.n.More++
			return
		}
		l = &line{text: text, rank: rank, order: g.order}
		g.order++
		g.lines[text] = l
	}
	l.count += len(pods)
	for _, p := range pods {
		if len(l.pods) < shownPods {
			l.pods = append(l.pods, p)
		}
	}
}

// mostLines bounds the memory of a group.
const mostLines = 200

func (g *group) place(node, namespace, strategy string) {
	for set, name := range map[*map[string]bool]string{&g.nodes: node, &g.namespaces: namespace, &g.strategies: strategy} {
		if name != "" && len(*set) <= MaxNames {
			(*set)[name] = true
		}
	}
}

func (l line) String() string {
	if l.count == 0 {
		return l.text
	}
	text := strings.Join(l.pods, ", ")
	if more := l.count - len(l.pods); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": " + l.text
}

// notification returns the message.
func (g *group) notification() Notification {
	n := g.n
	n.Kind = g.kind
	n.Nodes, n.Namespaces, n.Strategies = names(g.nodes), names(g.namespaces), names(g.strategies)
	n.Title = cut(g.title(), maxTitle)
	lines := slices.SortedFunc(maps.Values(g.lines), func(a, b *line) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.order, b.order))
	})
	for _, l := range lines {
		if len(n.Lines) == MaxLines {
			n.More += len(lines) - MaxLines
			break
		}
		n.Lines = append(n.Lines, cut(l.String(), maxLine))
	}
	return n
}

func names(set map[string]bool) []string {
	all := slices.Sorted(maps.Keys(set))
	return all[:min(len(all), MaxNames)]
}

func (g *group) title() string {
	text := ""
	switch g.kind {
	case Storm:
		text = "Rehome moves nothing: the cluster circuit breaker is open"
	case Drain:
		text = fmt.Sprintf("Maintenance %s: %s", g.n.Maintenance, g.requestTitle)
	default:
		var words []string
		for _, of := range []struct {
			n    int
			what string
		}{
			{g.n.Moved, "moved"}, {g.n.Deferred, "deferred"}, {g.n.Refused, "refused"}, {g.n.Failed, "failed"},
			{g.n.Problems, "settled with a problem"},
		} {
			if of.n > 0 {
				words = append(words, count(of.n, "pod")+" "+of.what)
			}
		}
		text = strings.Join(words, ", ")
		if text != "" {
			text += g.where()
		}
		text = strings.TrimSuffix(strings.TrimPrefix(g.requestTitle+": "+text, ": "), ": ")
	}
	if g.n.Cluster != "" && g.n.Cluster != "default" {
		text = g.n.Cluster + ": " + text
	}
	if g.n.DryRun {
		text = "(dry run) " + text
	}
	return text
}

// where names the node or counts the nodes.
func (g *group) where() string {
	switch nodes := names(g.nodes); len(nodes) {
	case 0:
		return ""
	case 1:
		return " on node " + nodes[0]
	case MaxNames:
		return " on many nodes"
	default:
		return fmt.Sprintf(" on %d nodes", len(nodes))
	}
}

// count is "1 thing" or "2 things".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
