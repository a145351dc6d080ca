package page

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pictures writes the pictures of the documentation.
var pictures = flag.Bool("pictures", false, "write the pictures of docs/ui.md to docs/images")

// hostile is a text that would run a script if the page took it as HTML.
const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`

const lifetime = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: default
    pluginConfig:
      - name: PodLifeTime
        args: {maxPodLifeTimeSeconds: 1}
    plugins:
      deschedule:
        enabled: [PodLifeTime]
`

// story is the test of one page: its parts build on each other.
type story struct {
	*stage
	*browser
	tainted string   // the node
	moved   []string // pods that were on it, and may move
	blocked []string // pods that the budget holds
}

func TestPage(t *testing.T) {
	s := &story{stage: newStage(t), browser: newBrowser(t)}
	reportTo := func(t *testing.T) { s.stage.TB, s.browser.TB = t, t } //nolint:staticcheck // both embed a TB
	s.show(1360, 820, "light")
	s.open(s.page())
	s.run("window.sameDocument = true")
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"shows_nodes_and_pods", s.showsCluster}, {"pods_travel_off_a_tainted_node", s.travels}, {"timeline_of_a_pod", s.timeline},
		{"deferred_pods_by_blocker", s.blocker}, {"node_that_cannot_be_empty", s.node}, {"replay_of_the_last_minute", s.replay},
		{"moves_of_a_policy", s.whatIf}, {"invalid_policy", s.invalidPolicy}, {"drain", s.drain}, {"hostile_text", s.hostileText},
		{"keyboard", s.keyboard}, {"accessible", s.isAccessible}, {"lost_cluster", s.lostCluster}, {"lost_connection", s.lostConnection},
	} {
		t.Run(part.name, func(t *testing.T) {
			reportTo(t)
			part.run(t)
		})
		reportTo(t)
	}
	if !get[bool](s.browser, "window.sameDocument === true") {
		t.Error("the page was loaded again")
	}
	s.NoErrors("the page")
}

// picture writes a view, light and dark, for the documentation.
func (s *story) picture(name string) {
	if !*pictures {
		return
	}
	const painted = "(rehome.stage.picture.queue.length === 0 || rehome.stage.picture.element.offsetParent === null)" // or not visible
	for _, theme := range []string{"light", "dark"} {
		s.show(1360, 820, theme)
		s.until("theme "+theme, fmt.Sprintf("document.documentElement.dataset.theme === %q && %s", theme, painted))
		s.shot(filepath.Join("../../docs/images", name+"-"+theme+".png"))
	}
	s.show(1360, 820, "light")
}

func (s *story) showsCluster(t *testing.T) {
	s.has(".numbers", "18", "127")
	got := get[map[string]int](s.browser, `Object.fromEntries(rehome.stage.picture.layout.heads.map((g) => [g.name, g.nodes.length]))`)
	if want := map[string]int{"zone-a": 6, "zone-b": 6, "zone-c": 6}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("groups %v, want %v", got, want)
	}
	for _, node := range s.nodes[:3] {
		got := get[[]string](s.browser, fmt.Sprintf(`rehome.model.nodes.get(%q).cells.filter(Boolean).map((p) => p.namespace + '/' + p.name).sort()`, node))
		if want := s.pods(node); !slices.Equal(got, want) {
			t.Errorf("%s shows %v, want %v", node, got, want)
		}
	}
	s.until("the first cell of the first node has the color of the legend", `(() => { const p = rehome.stage.picture, t = p.layout.tiles[0], l = p.layout;
		const d = p.context.getImageData((t.x + l.pad + l.cell / 2) * p.ratio, (t.y + l.head + l.cell / 2) * p.ratio, 1, 1).data;
		return '#' + [d[0], d[1], d[2]].map((v) => v.toString(16).padStart(2, '0')).join('') === p.colors.of(t.node.cells[0], rehome.model) })()`)
	for _, theme := range []string{"dark", "light"} {
		s.show(1360, 820, theme)
		s.until("the picture has the background of the theme "+theme, fmt.Sprintf(`(() => { const p = rehome.stage.picture;
			const c = document.createElement('canvas').getContext('2d');
			c.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--bg');
			c.fillRect(0, 0, 1, 1);
			return document.documentElement.dataset.theme === %q &&
				p.context.getImageData(1, p.base.height - 1, 1, 1).data.join() === c.getImageData(0, 0, 1, 1).data.join() })()`, theme))
	}
}

// travels taints the node of a pod with a budget: its other pods move.
func (s *story) travels(t *testing.T) {
	s.tainted = s.nodeOf("shop", "payments")
	for _, pod := range s.pods(s.tainted) {
		if strings.HasPrefix(pod, "shop/payments-") {
			s.blocked = append(s.blocked, pod)
		} else {
			s.moved = append(s.moved, pod)
		}
	}
	s.run(`window.seen = 0; { const p = rehome.stage.picture, paint = p.paintTravel.bind(p); p.paintTravel = (...a) => { seen++; return paint(...a); }; }`)
	s.taint(s.tainted)
	s.until("the tile has a taint", fmt.Sprintf("rehome.model.nodes.get(%q).taints.join() === 'dedicated=gpu:NoSchedule'", s.tainted))
	if *pictures {
		s.until("pods are on their way", "rehome.stage.picture.travels.some((t) => t.begin && performance.now() - t.begin > 350)")
		s.picture("cluster")
	}
	s.until("all its other pods travelled", fmt.Sprintf("rehome.stage.modes.cluster.recent.length >= %d", len(s.moved)))
	got := get[[]string](s.browser, fmt.Sprintf(
		`rehome.stage.modes.cluster.recent.filter((r) => r.from.node === %q && r.pod.node !== %q).map((r) => r.pod.namespace + '/' + r.from.name).sort()`, s.tainted, s.tainted))
	if !slices.Equal(got, s.moved) {
		t.Errorf("travelled %v, want %v", got, s.moved)
	}
	s.until("travelling pods were drawn, and arrived", fmt.Sprintf("seen >= %d && rehome.stage.picture.travels.length === 0", len(s.moved)))
	s.until("only pods with a budget are left", fmt.Sprintf(
		"rehome.model.nodes.get(%q).cells.filter(Boolean).length === %d", s.tainted, len(s.blocked)))
}

func (s *story) timeline(t *testing.T) {
	s.view("#/why/pod/" + s.moved[0])
	s.has(".timeline .entry.cause", "got the taint dedicated=gpu:NoSchedule", s.tainted)
	s.has(".timeline .entry.decision", "RemovePodsViolatingNodeTaints wants to move it off "+s.tainted)
	s.has(".timeline .entry.good", "Evicted", "Replaced")
	s.picture("timeline")
	s.click(".timeline .entry.good a") // the replacement
	s.has(".explanation", "It replaced "+s.moved[0][strings.Index(s.moved[0], "/")+1:])
}

func (s *story) blocker(t *testing.T) {
	s.view("#/why")
	s.has(".deferred .group", "Disruption budgets", "PodDisruptionBudget shop/payments", s.blocked[0])
	s.click(fmt.Sprintf(".deferred a[href='#/why/pod/%s']", s.blocked[0]))
	s.has(".explanation .notice", "Deferred: Disruption budget")
	s.has(".timeline .entry.warn", "Deferred", "Blocked by PodDisruptionBudget shop/payments")
	s.picture("why")
}

func (s *story) node(t *testing.T) {
	s.view("#/why/node/" + s.tainted)
	s.has(".explanation", fmt.Sprintf("0 of %d pod", len(s.blocked)), s.blocked[0])
	s.has(".explanation .row", "Disruption budget")
}

// replay goes to the time before the taint, and plays until now.
func (s *story) replay(t *testing.T) {
	s.view("#/time")
	s.until("the history", "rehome.stage.modes.time.replay?.events.length > 0")
	s.run(`{ const t = rehome.stage.modes.time; t.past(t.replay.events.find((e) => e.data.kind === 'node.taints').at - 1); }`)
	node := fmt.Sprintf("rehome.stage.model.nodes.get(%q)", s.tainted)
	names := "cells.filter(Boolean).map((p) => p.namespace + '/' + p.name).sort()"
	got := get[[]string](s.browser, node+"."+names)
	want := slices.Sorted(slices.Values(append(slices.Clone(s.moved), s.blocked...)))
	if taints := get[int](s.browser, node+".taints.length"); !slices.Equal(got, want) || taints != 0 {
		t.Errorf("before the taint: %v and %d taints, want %v", got, taints, want)
	}
	s.run(`document.getElementById('time-speed').value = '5'; window.seen = 0`) // which each picture of a traveling pod increases
	s.click(".play")
	s.until("a pod travels again", "seen > 0")
	s.picture("time")
	s.run(`document.getElementById('time-speed').value = '300'`)
	s.until("now", "document.querySelector('.live').getAttribute('aria-pressed') === 'true'")
	same := `JSON.stringify([...rehome.stage.modes.time.replay.model.pods.keys()].sort()) === JSON.stringify([...rehome.model.pods.keys()].sort())`
	if !get[bool](s.browser, same) {
		t.Error("the replay does not end with the pods that there are")
	}
}

func (s *story) whatIf(t *testing.T) {
	s.view("#/whatif")
	if result := get[string](s.browser, "document.querySelector('.side-result').textContent"); result != "" {
		t.Errorf("the result before a simulation is %q", result)
	}
	before := s.pods(s.nodes[0])
	s.run(fmt.Sprintf(`document.getElementById('policy').value = %q; document.getElementById('rounds').value = '1'`, lifetime))
	s.click(".side-body button[type=submit]")
	s.has(".side-result", "PodLifeTime", "Play the moves", s.blocked[0])
	moves := get[[]struct{ Node, To string }](s.browser, `rehome.stage.picture.arcs.map((a) => ({node: a.node, to: a.to}))`)
	if len(moves) < 100 {
		t.Errorf("%d moves are drawn, want at least 100", len(moves))
	}
	for _, m := range moves {
		if m.To == s.tainted || !slices.Contains(s.nodes, m.Node) {
			t.Errorf("a move from %q to %q is drawn", m.Node, m.To)
		}
	}
	s.run("rehome.route()") // as after a lost connection
	s.has(".side-result", "Play the moves")
	s.picture("whatif")
	if after := s.pods(s.nodes[0]); !slices.Equal(after, before) {
		t.Errorf("%s has the pods %v, want %v: a simulation moves nothing", s.nodes[0], after, before)
	}
}

func (s *story) invalidPolicy(t *testing.T) {
	s.run(`document.getElementById('policy').value = 'profiles: 7'`)
	s.click(".side-body button[type=submit]")
	s.has(".side-result .error", "profiles")
	if n := get[int](s.browser, "rehome.stage.picture.arcs.length"); n != 0 {
		t.Errorf("%d moves are drawn, want none", n)
	}
}

// drain drains the node of a pod with a budget, which blocks it.
func (s *story) drain(t *testing.T) {
	s.view("#/maintenance")
	s.has(".maintenance", "No node is in maintenance")
	node := s.nodes[slices.IndexFunc(s.nodes, func(n string) bool {
		return n != s.tainted && slices.ContainsFunc(s.pods(n), func(p string) bool { return strings.HasPrefix(p, "shop/payments-") })
	})]
	s.command("drain", node, "--reason", "Replace the fan", "--name", "fan")
	s.has(".drain", "fan", "Drain", "Replace the fan")
	s.until("the drain has blocked pods", "Number(document.querySelector('.drain .stats .bad dd')?.innerText) > 0")
	s.until("the elapsed time of a card changes without a new card", `(() => {
		const card = document.querySelector('.drain'), elapsed = card.querySelector('.stats div:last-child dd').textContent;
		if (window.card !== card) Object.assign(window, { card, elapsed });
		return window.elapsed !== elapsed;
	})()`)
	s.picture("maintenance")
	s.view("#/cluster")
	s.until("the tile is in maintenance", fmt.Sprintf("Boolean(rehome.model.nodes.get(%q).maintenance && rehome.model.nodes.get(%q).cordoned)", node, node))
}

func (s *story) hostileText(t *testing.T) {
	s.view("#/maintenance")
	s.command("drain", s.tainted, "--reason", hostile, "--name", "hostile")
	s.has(".drain", hostile)
	if hacked := get[bool](s.browser, "'hacked' in window || document.querySelector('main img') !== null"); hacked {
		t.Error("the page took text as HTML")
	}
}

// keyboard opens a node with keys alone.
func (s *story) keyboard(t *testing.T) {
	s.view("#/cluster")
	s.run("rehome.stage.picture.top.focus()")
	first := get[string](s.browser, "rehome.stage.picture.focus")
	s.key("ArrowRight")
	second := get[string](s.browser, "rehome.stage.picture.focus")
	if first == second {
		t.Errorf("the focus stays on %s", first)
	}
	s.has("#announcer", second)
	s.key("Enter")
	s.has(".side-detail", second, "What keeps it from being empty")
	s.key("Escape")
	s.until("the panel is closed", "document.querySelector('.side-detail').hidden && document.activeElement === rehome.stage.picture.top")
}

func (s *story) isAccessible(t *testing.T) {
	for _, view := range []string{"#/cluster", "#/why", "#/why/pod/" + s.blocked[0], "#/why/node/" + s.tainted, "#/time", "#/maintenance", "#/whatif"} {
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1360, 390} {
				t.Run(fmt.Sprintf("%s_%s_%d", strings.Trim(strings.SplitN(view, "/", 3)[1], "/"), theme, width), func(t *testing.T) {
					s.show(width, 820, theme)
					s.view(view)
					s.until("it is loaded", "![...document.querySelectorAll('main .loading')].some((e) => e.checkVisibility())")
					s.accessible(t)
					if wide := get[int](s.browser, "document.documentElement.scrollWidth"); wide > int(width) {
						t.Errorf("the page is %d pixels wide, want at most %d", wide, width)
					}
				})
			}
		}
	}
	s.show(390, 820, "light")
	s.view("#/cluster")
	if *pictures {
		s.shot("../../docs/images/phone-light.png")
	}
	s.show(1360, 820, "light")
}

// lostCluster stops the API server, and starts it again.
func (s *story) lostCluster(t *testing.T) {
	s.view("#/cluster")
	s.Must(s.cluster.StopAPIServer())
	s.has(".banner", "API server is unreachable")
	if same := get[bool](s.browser, `(() => {
		const shown = document.querySelector('.banner');
		rehome.activity();
		return shown.isConnected;
	})()`); !same {
		t.Error("an activity with the same warning makes the banner again, so a screen reader repeats it")
	}
	s.Must(s.cluster.StartAPIServer(t.Context()))
	s.until("the banner is gone", "document.querySelector('.banner') === null")
}

// lostConnection ends Rehome, and starts it again with its events: the page goes on without a reload.
func (s *story) lostConnection(t *testing.T) {
	s.running.Kill()
	s.has(".banner", "No connection to Rehome")
	s.has("#connection", "Offline")
	s.start()
	s.until("the banner is gone", "document.querySelector('.banner') === null")
	s.has("#connection", "Live")
	s.until("the cluster is there again", "rehome.model.ready && rehome.model.nodes.size === 18")
}
