// Maintenance: the progress of each drain. The activity has maintenances that were requested on the bus; the events have the status of
// each node of all of them.

import { count, digits, duration, el, empty, replace, time, words } from './dom.js';
import { stream } from './server.js';
import { nodeLink, podLink } from './why.js';

const kept = '72h';
const listedNodes = 40; // of a maintenance
const stages = ['Idle', 'Cordon', 'Drain', 'Complete'];
const done = ['Drained', 'Returned', 'Gone'];

export class MaintenanceView {
  constructor(app) {
    this.app = app;
    this.known = new Map(); // by UID
    this.cards = el('div', { class: 'cards' });
    this.finished = el('div', { class: 'cards' });
    this.finishedPart = el('section', { hidden: true, 'aria-label': 'Finished' }, el('p', { class: 'eyebrow' }, 'Finished'), this.finished);
    this.note = el('div', {});
    this.element = el('div', { class: 'page maintenance' }, el('h1', {}, 'Maintenance'), this.note, this.cards, this.finishedPart);
  }

  show() {
    this.follow ||= stream(`v1/events?type=maintenance&since=${kept}`, (_, e) => this.take(e), (state) => this.connected(state), { resume: true });
    this.update();
  }

  retry() { this.follow?.retry(); }

  connected(state) {
    this.refused = state.refused;
    this.loaded ||= state.up;
    if (this.app.current === this) this.update();
  }

  /** take merges the nodes that changed into what is known of a maintenance. */
  take(event) {
    const m = event.data;
    if (event.type !== 'dev.rehome.maintenance.v1' || !m?.uid) return;
    const before = this.known.get(m.uid);
    const nodes = m.whole || !before ? new Map() : before.byName;
    for (const n of m.nodes || []) nodes.set(n.name, n);
    for (const name of m.forgotten || []) nodes.delete(name);
    this.known.set(m.uid, { ...m, event: event.id, byName: nodes, at: new Date(event.time).getTime(), first: before?.first || new Date(event.time).getTime() });
  }

  tick() { this.update(); }

  /** list joins the maintenances of the events with those of the activity, which have no events yet. */
  list() {
    const list = [...this.known.values()];
    const names = new Set(list.map((m) => m.name));
    for (const m of this.app.model.activity?.maintenances || []) {
      if (names.has(m.name)) continue;
      list.push({ name: m.name, uid: m.name, stage: m.stage, reason: m.reason, accepted: true, first: new Date(m.since).getTime(), byName: new Map(), summary: { podsLeft: m.podsLeft, podsBlocked: m.podsBlocked, message: m.message }, nodeStage: m.node });
    }
    return list.sort((a, b) => b.first - a.first);
  }

  update() {
    const user = this.app.model.user;
    if (this.refused || (user && !(user.all && user.nodes))) {
      replace(this.note, 'refused', () => empty('You cannot see maintenances', this.refused?.message || 'They need the right to get nodes, and pods in all namespaces.'));
      replace(this.cards, 'refused', () => []);
      this.finishedPart.hidden = true;
      return;
    }
    const list = this.list();
    const open = list.filter((m) => !isDone(m));
    const finished = list.filter(isDone);
    replace(this.note, `${this.loaded} ${open.length === 0}`, () => (open.length > 0 ? null : !this.loaded ? el('p', { class: 'loading' }, 'Loading')
      : empty('No node is in maintenance', 'A NodeMaintenance, or the command "rehome drain NODE", begins one.')));
    const key = (cards) => JSON.stringify(cards.map((m) => m.event || m));
    replace(this.cards, key(open), () => open.map((m) => this.card(m)));
    for (const e of this.cards.querySelectorAll('[data-begun]')) e.textContent = elapsed(Number(e.dataset.begun));
    this.finishedPart.hidden = finished.length === 0;
    replace(this.finished, key(finished), () => finished.map((m) => this.card(m)));
  }

  card(m) {
    const nodes = [...m.byName.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    const finished = nodes.filter((n) => done.includes(n.stage)).length;
    const moved = nodes.reduce((sum, n) => sum + (n.pods?.moved || 0), 0);
    const left = m.summary?.podsLeft ?? nodes.reduce((sum, n) => sum + (n.pods?.left || 0), 0);
    const blocked = m.summary?.podsBlocked || 0;
    const begun = m.stages?.[0]?.start ? new Date(m.stages[0].start).getTime() : m.first;
    return el('article', { class: 'card drain', 'aria-label': `Maintenance ${m.name}` },
      el('div', { class: 'group-head' }, el('h2', {}, m.name), el('span', { class: `badge ${blocked > 0 ? 'warn' : isDone(m) ? 'good' : 'info'}` }, m.accepted === false ? 'Refused' : isDone(m) ? 'Finished' : m.stage), m.dryRun ? el('span', { class: 'badge' }, 'Dry run') : null),
      m.reason ? el('p', { class: 'muted' }, m.reason) : null,
      m.refusal ? el('p', { class: 'error' }, `${words(m.refusal.reason)}: ${m.refusal.message}`) : null,
      el('ol', { class: 'steps', 'aria-label': 'Stages' }, ...stages.map((s) => {
        const began = m.stages?.find((t) => t.stage === s);
        const reached = stages.indexOf(s) <= stages.indexOf(m.stage);
        return el('li', { class: `${reached ? 'reached' : ''} ${s === m.stage ? 'now' : ''}`, 'aria-current': s === m.stage ? 'step' : null }, el('span', {}, s), el('span', { class: 'muted' }, began ? time(began.start) : ''));
      })),
      this.progress(moved, left, blocked),
      el('dl', { class: 'stats' }, ...[['Nodes done', nodes.length > 0 ? `${finished} of ${nodes.length}` : m.summary?.nodes || '–'], ['Pods left', digits(left)], ['Blocked', digits(blocked)]]
        .map(([t, d]) => el('div', { class: t === 'Blocked' && blocked > 0 ? 'bad' : '' }, el('dt', {}, t), el('dd', {}, d))),
      el('div', {}, el('dt', {}, 'Elapsed'), isDone(m) ? el('dd', {}, elapsed(begun, m.at)) : el('dd', { 'data-begun': String(begun) }))),
      m.summary?.message ? el('p', {}, m.summary.message) : null,
      nodes.length > 0 ? el('details', { id: `nodes-${m.uid}`, open: nodes.length <= 4 || undefined }, el('summary', {}, count(nodes.length, 'node')), el('ul', { class: 'rows' }, ...nodes.slice(0, listedNodes).map((n) => this.node(n))),
        nodes.length > listedNodes ? el('p', { class: 'muted' }, `and ${nodes.length - listedNodes} more`) : null) : null);
  }

  progress(moved, left, blocked) {
    const total = Math.max(1, moved + left);
    return el('div', { class: 'progress', role: 'progressbar', 'aria-label': 'Pods moved', 'aria-valuemin': '0', 'aria-valuemax': String(total), 'aria-valuenow': String(left === 0 ? total : moved) },
      el('span', { class: 'progress-good', style: { width: `${left === 0 ? 100 : (100 * moved) / total}%` } }),
      el('span', { class: 'progress-bad', style: { width: `${(100 * blocked) / total}%` } }));
  }

  node(n) {
    const counts = n.pods ? [`${n.pods.moved} moved`, `${n.pods.left} left`, n.pods.blocked > 0 && `${n.pods.blocked} blocked`, n.pods.staying > 0 && `${n.pods.staying} stay`].filter(Boolean).join(' · ') : '';
    return el('li', { class: 'row' },
      el('div', { class: 'row-head' }, el('a', { href: nodeLink(n.name) }, n.name), el('span', { class: `badge ${done.includes(n.stage) ? 'good' : n.stage === 'Held' ? 'bad' : ''}` }, n.stage)),
      el('p', { class: 'muted' }, [counts, n.message].filter(Boolean).join(' — ')),
      n.blocked?.length > 0 ? el('ul', { class: 'rows blocked' }, ...n.blocked.map((b) => el('li', {}, el('a', { href: podLink(b.namespace, b.name) }, `${b.namespace}/${b.name}`),
        el('p', { class: 'muted' }, [words(b.reason), b.message || b.by].filter(Boolean).join(': '))))) : null,
      n.more > 0 ? el('p', { class: 'muted' }, `and ${count(n.more, 'more blocked pod')}`) : null);
  }
}

const elapsed = (begun, end = Date.now()) => duration((end - begun) / 1000);

/** isDone: every node is released, or the maintenance was refused. */
function isDone(m) {
  if (m.stage !== 'Complete') return false;
  const nodes = [...m.byName.values()];
  return nodes.every((n) => ['Returned', 'Gone'].includes(n.stage));
}
