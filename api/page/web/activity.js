// The side panel of the Cluster view: what happens now, or the chosen node or pod.

import { bytes, count, digits, el, empty, icon, icons, meter, replace, since, time, timeElement } from './dom.js';
import { deferralCard, nodeExplanation, nodeLink, podExplanation, podLink } from './why.js';
import { stateOf, states } from './picture/colors.js';
import { taintText } from './words.js';

const kept = 40; // recent moves
const mostRecent = 15; // in the list, which is made again each second while pods move
const mostMoves = 30; // in flight, in the list
const mostPods = 120; // of a node, in the list

export class ActivityPanel {
  constructor(stage) {
    this.stage = stage;
    this.app = stage.app;
    this.recent = [];
    this.now = el('div', { class: 'side-now' });
    this.detail = el('div', { class: 'side-detail', tabIndex: -1, hidden: true });
    this.element = el('div', { class: 'side-body' }, stage.numbers, this.now, this.detail);
    this.cancel = () => {};
    this.app.model.listen((kind, value) => {
      if (kind === 'reset') this.recent = [];
      if (kind !== 'travel') return;
      this.recent.unshift({ ...value, at: Date.now() });
      this.recent.length = Math.min(this.recent.length, kept);
      this.changed = true;
    });
  }

  enter() {
    this.element.prepend(this.stage.numbers);
    this.update();
  }

  leave() { this.close(); }

  show([kind, first, second]) {
    const { model } = this.app;
    const node = kind === 'node' && model.nodes.get(first);
    const pod = kind === 'pod' && [...model.pods.values()].find((p) => p.namespace === first && p.name === second);
    if (node) this.select(node, null);
    else if (pod) this.select(model.nodes.get(pod.node), pod);
  }

  update() {
    if (!this.detail.hidden) return;
    const { activity } = this.app.model;
    const moves = activity?.moves || [];
    const key = JSON.stringify([this.app.model.ready, moves.map((m) => [m.pod.uid, m.waitsFor]), this.recent[0]?.at, activity?.breakers?.filter((b) => b.holds).length, activity?.limitsReached]);
    replace(this.now, key, () => [
      this.moves(moves), this.limits(activity), this.breakers(activity?.breakers || []), this.recently(),
    ]);
  }

  moves(moves) {
    if (!this.app.model.ready) return el('p', { class: 'loading', role: 'status' }, 'Loading');
    return el('section', {}, el('h2', {}, 'In flight'), moves.length === 0 ? empty('Nothing moves', 'Moves appear here as they begin.')
      : el('ul', { class: 'rows' }, ...moves.slice(0, mostMoves).map((m) => el('li', { class: 'row' },
        el('a', { href: podLink(m.pod.namespace, m.pod.name) }, m.pod.name),
        el('p', { class: 'muted' }, `${m.strategy} · off ${m.node}`), el('p', { class: 'muted' }, `since ${time(m.begun)}; waits for ${m.waitsFor}`)))),
    moves.length > mostMoves ? el('p', { class: 'muted' }, `and ${moves.length - mostMoves} more`) : null);
  }

  limits(activity) {
    const list = activity?.limitsReached || [];
    return list.length > 0 && el('section', {}, el('h2', {}, 'Limits reached'), el('ul', { class: 'plain' }, ...list.map((l) => el('li', {}, l))));
  }

  breakers(list) {
    const open = list.filter((b) => b.holds);
    return open.length > 0 && el('section', {}, el('h2', {}, 'Open circuit breakers'), el('ul', { class: 'rows' }, ...open.slice(0, mostMoves).map((b) => el('li', { class: 'row' },
      el('strong', {}, b.name ? `${b.name.namespace}/${b.name.name}` : b.workload), el('p', { class: 'muted' }, `${b.strategy} on ${b.node} until ${time(b.until)}`)))));
  }

  recently() {
    return this.recent.length > 0 && el('section', {}, el('h2', {}, 'Replaced'), el('ul', { class: 'rows' }, ...this.recent.slice(0, mostRecent).map((r) => el('li', { class: 'row' },
      el('div', { class: 'row-head' }, el('a', { href: podLink(r.pod.namespace, r.pod.name) }, r.pod.name), timeElement(r.at)),
      el('p', { class: 'muted way' }, r.from.node, icon(icons.right, 'to'), r.pod.node || 'no node')))));
  }

  close() {
    this.cancel();
    if (this.detail.hidden) return;
    this.detail.hidden = true;
    this.now.hidden = false;
    this.stage.element.classList.remove('has-detail');
    this.stage.picture.select(null);
    this.now.dataset.key = '';
    this.update();
  }

  select(node, pod) {
    this.cancel();
    this.detail.hidden = false;
    this.now.hidden = true;
    this.stage.element.classList.add('has-detail');
    this.stage.picture.select({ node: node?.name, cell: pod ? pod.cell : -1 });
    const close = el('button', { type: 'button', class: 'icon-button', 'aria-label': 'Close', title: 'Close', on: { click: () => this.close() } }, icon(icons.close));
    this.detail.replaceChildren(...(pod ? this.podDetail(pod, node, close) : this.nodeDetail(node, close)));
    this.detail.onkeydown = (e) => {
      if (e.key !== 'Escape') return;
      this.close();
      this.stage.picture.top.focus();
    };
    this.detail.scrollTop = 0;
    this.detail.focus({ preventScroll: true });
  }

  podDetail(pod, node, close) {
    const body = el('div', {});
    const deferred = this.app.model.deferred.get(pod.uid);
    this.cancel = podExplanation(body, pod.namespace, pod.name);
    return [
      el('div', { class: 'side-head' }, el('div', {}, el('p', { class: 'eyebrow' }, `Pod in ${pod.namespace}`), el('h2', { class: 'name' }, pod.name)), close),
      el('dl', { class: 'facts' }, ...[
        ['State', states[stateOf(pod, this.app.model)].text], ['Node', el('button', { type: 'button', class: 'link', on: { click: () => this.select(node, null) } }, pod.node || 'none')],
        pod.workload && ['Workload', pod.workload], ['Age', since(pod.created * 1000)], pod.flags & 4 ? ['Budget', 'A PodDisruptionBudget covers it'] : null,
      ].filter(Boolean).flatMap(([t, d]) => [el('dt', {}, t), el('dd', {}, d)])),
      deferred ? deferralCard(deferred) : '', body,
      el('p', {}, el('a', { href: podLink(pod.namespace, pod.name) }, 'Open in Why')),
    ];
  }

  nodeDetail(node, close) {
    const body = el('div', {});
    const c = node.capacity || {};
    const r = node.requested || {};
    const pods = node.cells.filter(Boolean);
    this.cancel = nodeExplanation(body, node.name);
    const states = this.app.nodeState(node);
    return [
      el('div', { class: 'side-head' }, el('div', {}, el('p', { class: 'eyebrow' }, 'Node'), el('h2', { class: 'name' }, node.name)), close),
      el('ul', { class: 'chips' }, ...states.filter((s) => !s.startsWith('taint')).map((s) => el('li', {}, s))),
      c.cpu ? el('div', { class: 'meters' }, meter('CPU', r.cpu, c.cpu, `${digits(r.cpu / 1000)} of ${digits(c.cpu / 1000)} cores`),
        meter('Memory', r.memory, c.memory, `${bytes(r.memory)} of ${bytes(c.memory)}`), meter('Pods', node.pods, c.pods, `${node.pods} of ${c.pods}`)) : '',
      node.taints.length > 0 ? el('section', { class: 'section' }, el('h3', {}, 'Taints'), el('ul', { class: 'plain codes' }, ...node.taints.map((t) => el('li', {}, taintText(t))))) : '',
      el('section', { class: 'section' }, el('h3', {}, 'What keeps it from being empty'), body),
      el('details', { class: 'section' }, el('summary', {}, count(pods.length, 'pod')), el('ul', { class: 'rows' }, ...pods.slice(0, mostPods).map((p) => el('li', { class: 'row' },
        el('button', { type: 'button', class: 'link', on: { click: () => this.select(node, p) } }, `${p.namespace}/${p.name}`))))),
      el('details', { class: 'section' }, el('summary', {}, count(Object.keys(node.labels).length, 'label')), el('ul', { class: 'plain codes' },
        ...Object.entries(node.labels).map(([k, v]) => el('li', {}, `${k}=${v}`)))),
      el('p', {}, el('a', { href: nodeLink(node.name) }, 'Open in Why')),
    ];
  }
}
