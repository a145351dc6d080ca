// What if: a policy, and the moves that it would make now, drawn in the picture.

import { count, digits, el, empty, icon, icons, words } from './dom.js';
import { simulate } from './server.js';

const largest = 1 << 20; // bytes of a policy
const listed = 150; // moves, and pods that stay
const example = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: default
    pluginConfig:
      - name: RemovePodsViolatingNodeTaints
    plugins:
      deschedule:
        enabled:
          - RemovePodsViolatingNodeTaints
`;

export class WhatIfView {
  constructor(stage) {
    this.stage = stage;
    this.app = stage.app;
    this.policy = el('textarea', { id: 'policy', spellcheck: 'false', rows: 14, 'aria-describedby': 'policy-help' });
    this.policy.value = example;
    this.file = el('input', { type: 'file', id: 'policy-file', accept: '.yaml,.yml,.json', class: 'hidden', on: { change: () => this.load() } });
    this.rounds = el('select', { id: 'rounds' }, ...[1, 3, 10].map((n) => el('option', { value: String(n), selected: n === 3 || undefined }, n === 1 ? 'one round' : `up to ${n} rounds`)));
    this.run = el('button', { type: 'submit', class: 'primary' }, 'Show the moves');
    this.result = el('div', { class: 'side-result', 'aria-live': 'polite' });
    const form = el('form', { on: { submit: (e) => this.submit(e) } },
      el('div', { class: 'row-head' }, el('label', { for: 'policy' }, 'Policy'), el('label', { for: 'policy-file', class: 'button' }, 'Open a file', this.file)),
      this.policy, el('p', { id: 'policy-help', class: 'muted' }, 'This is a preview: no pod moves. Rehome evaluates the policy on the current cluster.'),
      el('div', { class: 'input-row' }, el('label', { class: 'hidden', for: 'rounds' }, 'Rounds'), this.rounds, this.run));
    this.element = el('div', { class: 'side-body' }, el('h2', {}, 'What would a policy move?'), form, this.result);
    this.policy.addEventListener('dragover', (e) => e.preventDefault());
    this.policy.addEventListener('drop', (e) => {
      e.preventDefault();
      this.read(e.dataTransfer.files[0]);
    });
  }

  leave() {
    this.abort?.abort();
    this.stage.picture.set({ arcs: [] });
  }

  enter() { this.draw(); }

  select(node, pod) {
    const index = this.moves?.findIndex((m) => (pod ? m.pod.uid === pod.uid : m.node === node.name || m.to === node.name));
    this.result.querySelectorAll('[data-move]')[index]?.scrollIntoView({ block: 'nearest' });
    this.stage.picture.select({ node: node.name, cell: pod ? pod.cell : -1 });
  }

  load() {
    this.read(this.file.files[0]);
    this.file.value = '';
  }

  async read(file) {
    if (!file) return;
    if (file.size > largest) this.fail(`${file.name} is larger than 1 MiB.`);
    else this.policy.value = await file.text();
  }

  fail(message) { this.result.replaceChildren(el('p', { class: 'error', role: 'alert' }, message)); }

  async submit(event) {
    event.preventDefault();
    this.abort?.abort();
    this.abort = new AbortController();
    this.run.disabled = true;
    this.moves = null;
    this.draw();
    this.result.replaceChildren(el('p', { class: 'loading', role: 'status' }, 'Deciding'));
    try {
      this.showMoves(await simulate(this.policy.value, Number(this.rounds.value), this.abort.signal));
    } catch (error) {
      if (error.name !== 'AbortError') this.fail(error.message);
    } finally { this.run.disabled = false; }
  }

  draw() {
    const strategies = [...new Set((this.moves || []).map((m) => m.strategy))];
    const { palette } = this.stage.colors;
    this.stage.picture.set({
      arcs: (this.moves || []).map((m, order) => ({ uid: m.pod.uid, node: m.node, to: m.to, order, color: palette[strategies.indexOf(m.strategy) % palette.length] })),
    });
  }

  showMoves(settlement) {
    const rounds = settlement.rounds || [];
    this.moves = rounds.flatMap((r) => (r.moves || []).map((m) => ({ ...m, round: r.number })));
    const held = rounds[0]?.held || [];
    this.draw();
    const { moves } = this;
    const pending = moves.filter((m) => !m.to).length;
    const nodes = new Set(moves.map((m) => m.node));
    this.result.replaceChildren(
      el('div', { class: 'notice' }, el('strong', {}, moves.length === 0 ? 'This policy moves nothing now.' : `${count(moves.length, 'move')} off ${count(nodes.size, 'node')}`),
        el('p', {}, [settlement.settled ? 'Then nothing more moves.' : settlement.loop !== undefined ? 'Then the moves repeat: this policy has a loop.' : 'More rounds would move more.',
          pending > 0 && `${count(pending, 'replacement')} would find no node.`, held.length > 0 && `${count(held.length, 'pod')} should move and cannot.`].filter(Boolean).join(' '))),
      moves.length > 0 ? el('button', { type: 'button', on: { click: () => this.stage.picture.playArcs() } }, icon(icons.play), 'Play the moves') : '',
      ...this.lists(moves, held));
  }

  lists(moves, held) {
    const byStrategy = group(moves, (m) => m.strategy);
    const byReason = group(held, (h) => h.reason);
    return [
      moves.length === 0 && held.length === 0 ? empty('No pod is out of place', 'Try another policy, or taint a node first.') : '',
      ...[...byStrategy].map(([strategy, list]) => el('section', {}, el('h3', {}, `${strategy} (${digits(list.length)})`), el('ul', { class: 'rows' }, ...list.slice(0, listed).map((m) => el('li', { class: 'row', 'data-move': m.pod.uid },
        el('strong', {}, `${m.pod.namespace}/${m.pod.name}`),
        el('p', { class: 'way' }, m.node, icon(icons.right, 'to'), m.to || el('span', { class: 'bad-text' }, `no node${m.pending ? `: ${m.pending}` : ''}`)),
        el('p', { class: 'muted' }, `${m.message}${m.round > 1 ? ` · round ${m.round}` : ''}`)))), more(list))),
      ...[...byReason].map(([reason, list]) => el('section', {}, el('h3', {}, `${words(reason)} (${digits(list.length)})`), el('ul', { class: 'rows' }, ...list.slice(0, listed).map((h) => el('li', { class: 'row' },
        el('strong', {}, `${h.pod.namespace}/${h.pod.name}`), el('p', { class: 'muted' }, `${h.strategy} · on ${h.node} · ${h.message}`)))), more(list))),
    ].filter(Boolean);
  }
}

const more = (list) => (list.length > listed ? el('p', { class: 'muted' }, `and ${digits(list.length - listed)} more`) : null);

function group(list, key) {
  const groups = new Map();
  for (const item of list) groups.set(key(item), [...(groups.get(key(item)) || []), item]);
  return groups;
}
