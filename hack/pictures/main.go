// Command pictures draws each strategy into docs/images/strategies: a small cluster of scenes.yaml before and after the moves.
// It reads and writes below the working directory. make generate calls it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml" //nolint:depguard // scenes have Kubernetes types, whose fields have json tags

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/simulate"
)

// The files of the pictures of strategies.
const (
	scenesFile   = "hack/pictures/scenes.yaml"
	templateFile = "hack/pictures/strategy.svg.tmpl"
)

// scene is a small cluster that shows one strategy.
type scene struct {
	Strategy string `json:"strategy"`
	// Change is what happens before the strategy moves pods.
	Change    string          `json:"change"`
	Args      json.RawMessage `json:"args"`
	Scheduler string          `json:"scheduler"`
	Nodes     []corev1.Node   `json:"nodes"`
	Pods      []corev1.Pod    `json:"pods"`
}

// now is the time in each scene.
var now = time.Date(2030, 1, 10, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

func main() {
	if err := draw("docs/images/strategies"); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// draw draws each strategy into a file of dir: its scene before and after the moves.
func draw(dir string) error {
	text, err := os.ReadFile(scenesFile)
	if err != nil {
		return err
	}
	var scenes []scene
	if err := yaml.UnmarshalStrict(text, &scenes); err != nil {
		return fmt.Errorf("%s: %w", scenesFile, err)
	}
	add := func(a, b int) int { return a + b }
	t, err := template.New(filepath.Base(templateFile)).Funcs(template.FuncMap{"add": add}).ParseFiles(templateFile)
	if err != nil {
		return err
	}
	for _, f := range functions.All() {
		at := slices.IndexFunc(scenes, func(s scene) bool { return s.Strategy == f.Strategy.Name })
		if at < 0 {
			return fmt.Errorf("%s: there is no scene for strategy %s", scenesFile, f.Strategy.Name)
		}
		picture, err := scenes[at].draw(f)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", scenesFile, f.Strategy.Name, err)
		}
		var svg bytes.Buffer
		if err := t.Execute(&svg, picture); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Strategy.Name+".svg"), svg.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// complete adds the fields that the objects of all scenes share.
func (s *scene) complete() (objects []metav1.Object) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.UID, n.Status.Allocatable = types.UID(n.Name), corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
			corev1.ResourcePods: resource.MustParse("110"),
		}
		n.Labels = labels.Merge(labels.Set{corev1.LabelHostname: n.Name}, n.Labels)
		objects = append(objects, n.DeepCopy())
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		app, _, _ := strings.Cut(p.Name, "-")
		p.Namespace, p.UID, p.Labels = "shop", types.UID(p.Name), labels.Merge(labels.Set{"app": app}, p.Labels)
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: new(true),
		}}
		if p.Spec.Containers == nil {
			p.Spec.Containers = []corev1.Container{{Name: "main", Image: app}}
		}
		if p.CreationTimestamp.IsZero() {
			p.CreationTimestamp = metav1.NewTime(now.Add(-24 * time.Hour))
		}
		if p.Status.Phase == "" {
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		p.Status.StartTime = &p.CreationTimestamp
		objects = append(objects, p.DeepCopy())
	}
	return objects
}

// run returns the moves of the strategy and the state of the nodes before and after them.
func (s *scene) run(f functions.Function) (moves []simulate.Move, before, after simulate.State, err error) {
	if s.Args == nil {
		s.Args = json.RawMessage("{}")
	}
	name, _ := json.Marshal(s.Strategy)
	text := fmt.Sprintf(`{"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [{"name": "scene",
		"pluginConfig": [{"name": %s, "args": %s}], "plugins": {%q: {"enabled": [%s]}}}]}`, name, s.Args, f.Strategy.Point, name)
	p, err := policy.Parse("policy of the scene", []byte(text), []policy.Strategy{f.Strategy})
	if err != nil {
		return nil, before, after, err
	}
	p.Scheduler.Profile = s.Scheduler
	c := simulate.Config{Policy: p, Functions: []functions.Function{f}, Now: func() time.Time { return now }}
	settled, err := simulate.Settle(context.Background(), c, s.complete(), 2)
	switch {
	case err != nil:
		return nil, before, after, err
	case !settled.Settled || len(settled.Rounds) != 2:
		return nil, before, after, fmt.Errorf("the strategy must move pods in one round, and then none: %+v", settled.Rounds)
	}
	return settled.Rounds[0].Moves, settled.Before, settled.Rounds[0].After, nil
}

// Sizes in the picture.
const (
	margin, panelWidth         = 16, 336
	tileWidth, tileHeight, gap = 100, 38, 8
	headHeight                 = 28 // of a node, above its pods
	top                        = 78 // above the nodes
)

type picture struct {
	Strategy, Change, Description string
	Height                        int
	Panels                        []panel
	Captions                      []caption
}

type panel struct {
	Title string
	X     int
	Nodes []box
}

type box struct {
	Name, Facts  string
	CPU          int // requested percentage, or -1
	X, Y, Height int
	Pods         []tile
}

// tile is a pod. Its kind is stays, leaves, left, or new.
type tile struct {
	Name, Note, Kind string
	X, Y             int
}

type caption struct {
	Text string
	Y    int
}

// draw runs the strategy and draws the result.
func (s *scene) draw(f functions.Function) (picture, error) {
	moves, before, after, err := s.run(f)
	if err != nil {
		return picture{}, err
	}
	d := picture{Strategy: s.Strategy, Change: s.Change, Panels: []panel{
		{Title: "Before", X: margin}, {Title: "After", X: 2*margin + panelWidth},
	}}
	reasons := map[string][]string{}
	var ordered []string
	for _, m := range moves {
		if reasons[m.Message] == nil {
			ordered = append(ordered, m.Message)
		}
		reasons[m.Message] = append(reasons[m.Message], m.Pod.Name)
	}
	y := top
	for i, n := range s.Nodes {
		old, fresh := s.tiles(n.Name, moves)
		lines := max(1, (max(len(old), len(fresh))+2)/3)
		height := headHeight + lines*(tileHeight+gap) + 2
		for p, pods := range [][]tile{old, fresh} {
			b := box{
				Name: n.Name, Facts: facts(n), CPU: []int{before.Nodes[i].CPU, after.Nodes[i].CPU}[p],
				X: d.Panels[p].X, Y: y, Height: height, Pods: pods,
			}
			if !s.usesCPU() {
				b.CPU = -1
			}
			for j := range pods {
				pods[j].X, pods[j].Y = b.X+10+j%3*(tileWidth+gap), y+headHeight+j/3*(tileHeight+gap)
			}
			d.Panels[p].Nodes = append(d.Panels[p].Nodes, b)
		}
		y += height + gap
	}
	for _, reason := range ordered {
		text := strings.Join(reasons[reason], ", ") + ": " + reason
		for _, line := range wrap(text, 104) {
			y += 20
			d.Captions = append(d.Captions, caption{line, y - gap + 4})
		}
	}
	d.Height = y + 2*margin + 10
	d.Description = describe(d.Panels)
	return d, nil
}

// tiles returns the pods of a node before and after the moves.
func (s *scene) tiles(node string, moves []simulate.Move) (before, after []tile) {
	for _, p := range s.Pods {
		switch {
		case p.Spec.NodeName != node:
		case slices.ContainsFunc(moves, func(m simulate.Move) bool { return m.Pod.Name == p.Name }):
			before = append(before, tile{Name: p.Name, Note: note(p), Kind: "leaves"})
			after = append(after, tile{Name: p.Name, Note: "gone", Kind: "left"})
		default:
			stays := tile{Name: p.Name, Note: note(p), Kind: "stays"}
			before, after = append(before, stays), append(after, stays)
		}
	}
	for _, m := range moves {
		if m.To == node {
			after = append(after, tile{Name: strings.TrimSuffix(m.Replacement, "~1"), Note: "replacement", Kind: "new"})
		}
	}
	return before, after
}

// usesCPU returns whether a pod of the scene requests CPU.
func (s *scene) usesCPU() bool {
	return slices.ContainsFunc(s.Pods, func(p corev1.Pod) bool { return !p.Spec.Containers[0].Resources.Requests.Cpu().IsZero() })
}

// facts returns the taints and the labels of a node.
func facts(n corev1.Node) string {
	var all []string
	for _, t := range n.Spec.Taints {
		all = append(all, "taint "+t.ToString())
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		if key != corev1.LabelHostname {
			all = append(all, key+"="+n.Labels[key])
		}
	}
	return strings.Join(all, ", ")
}

// note returns the property of a pod that a strategy looks at.
func note(p corev1.Pod) string {
	age := int(now.Sub(p.CreationTimestamp.Time).Hours() / 24)
	affinity := p.Spec.Affinity
	switch {
	case p.Status.Phase == corev1.PodFailed:
		return "Failed: " + p.Status.Reason
	case len(p.Status.ContainerStatuses) > 0:
		return fmt.Sprint(p.Status.ContainerStatuses[0].RestartCount, " restarts")
	case age > 1:
		return fmt.Sprint(age, " days old")
	case len(p.Spec.Tolerations) > 0:
		return "tolerates " + p.Spec.Tolerations[0].Key
	case affinity != nil && affinity.NodeAffinity != nil:
		e := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0]
		return "needs " + e.Key + "=" + e.Values[0]
	case affinity != nil && affinity.PodAntiAffinity != nil:
		return "not with " + affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels["app"]
	case !p.Spec.Containers[0].Resources.Requests.Cpu().IsZero():
		return p.Spec.Containers[0].Resources.Requests.Cpu().String() + " CPU"
	}
	return ""
}

// describe returns the panels as text.
func describe(panels []panel) string {
	var all []string
	for _, p := range panels {
		for _, n := range p.Nodes {
			pods := []string{}
			for _, t := range n.Pods {
				if t.Kind != "left" {
					pods = append(pods, strings.TrimSuffix(t.Name+" ("+strings.TrimPrefix(t.Kind+", ", "stays, ")+t.Note, ", ")+")")
				}
			}
			all = append(all, p.Title+", "+n.Name+": "+strings.Join(pods, ", ")+".")
		}
	}
	return strings.ReplaceAll(strings.Join(all, " "), " ()", "")
}

// wrap breaks a text into lines of at most a number of characters.
func wrap(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if lines[last] != "" && len(lines[last])+1+len(word) > width {
			lines, last = append(lines, ""), last+1
		}
		lines[last] = strings.TrimSpace(lines[last] + " " + word)
	}
	return lines
}
