package look

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/cli/cmdutil"
)

// picture is the status on a terminal: nodes by zone with their pods, and the tables of `rehome status` below.
type picture struct {
	look          func() (client.State, error)
	state         client.State
	known         bool  // the state is known
	err           error // of the last look
	width, height int
	top           int // the first line that is shown
}

func newPicture(look func() (client.State, error)) picture {
	return picture{look: look, width: 80, height: 24}
}

// View implements [tea.Model].
func (p picture) View() string {
	lines := p.lines()
	top := max(0, min(p.top, len(lines)-p.height+1))
	shown := lines[top:min(len(lines), top+max(p.height-1, 1))]
	footer := "q quits"
	if len(lines) > len(shown) {
		footer = fmt.Sprintf("lines %d to %d of %d; arrows scroll, q quits", top+1, top+len(shown), len(lines))
	}
	return strings.Join(append(slices.Clone(shown), footer), "\n")
}

// lines returns all lines, cut to the width.
func (p picture) lines() []string {
	var all []string
	if p.err != nil {
		all = append(all, "NOT CURRENT: "+cmdutil.Printable(p.err.Error()))
	}
	if !p.known {
		return append(all, "looking for Rehome ...")
	}
	if p.state.Cluster != "" {
		title := fmt.Sprintf("cluster %s, installation %s, version %s", p.state.Cluster, p.state.Installation, p.state.Version)
		if p.state.DryRun {
			title += ", DRY RUN: nothing moves"
		}
		all = append(all, title)
	}
	all = append(all, p.nodes()...)
	var page bytes.Buffer
	err := StatusPage{p.state.Status}.Write(&page)
	all = append(all, strings.Split(strings.TrimRight(page.String(), "\n"), "\n")...)
	if err != nil {
		all = append(all, err.Error())
	}
	for i, line := range all {
		if runes := []rune(line); len(runes) > p.width {
			all[i] = string(runes[:max(p.width-1, 0)]) + "…"
		}
	}
	return all
}

const (
	gauge     = 10 // characters
	nodeWidth = 46
)

// nodes returns the nodes by zone, in as many columns as fit.
func (p picture) nodes() (lines []string) {
	zones := map[string][]client.NodeRow{}
	for _, n := range p.state.Nodes {
		zone := n.Labels[corev1.LabelTopologyZone]
		zones[zone] = append(zones[zone], n)
	}
	var names []string
	for zone := range zones {
		names = append(names, zone)
	}
	slices.Sort(names)
	columns := max(1, p.width/nodeWidth)
	for _, zone := range names {
		title := cmp.Or(cmdutil.Printable(zone), "no zone") + ": " + cmdutil.Count(len(zones[zone]), "node")
		lines = append(lines, "", title)
		row := ""
		for i, n := range zones[zone] {
			row += fmt.Sprintf("%-*s", nodeWidth, nodeCell(n))
			if i%columns == columns-1 || i == len(zones[zone])-1 {
				lines = append(lines, strings.TrimRight(row, " "))
				row = ""
			}
		}
	}
	if len(lines) > 0 {
		lines = append(lines, "")
	}
	return lines
}

// nodeCell returns a node with a gauge of its pods, and the state that keeps pods away.
func nodeCell(n client.NodeRow) string {
	full := 0
	if n.Capacity.Pods > 0 {
		full = int(min(gauge, (n.Requested.Pods*gauge+n.Capacity.Pods-1)/n.Capacity.Pods))
	}
	text := fmt.Sprintf("%-18s [%s%s] %3d", shorten(cmdutil.Printable(n.Name), 18),
		strings.Repeat("#", full), strings.Repeat(".", gauge-full), n.Requested.Pods)
	switch {
	case !n.Ready:
		text += " not ready"
	case n.Maintenance != "":
		text += " maintained"
	case n.Cordoned:
		text += " cordoned"
	case len(n.Taints) > 0:
		text += " tainted"
	}
	return text
}

// shorten keeps the end of a name, because the beginnings are often alike.
func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return "…" + string(runes[len(runes)-most+1:])
}
