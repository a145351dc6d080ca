// The views with the picture: Cluster, Time, and What if. They share the toolbar, the picture or the list, and the legend. Each has
// its side panel.

import { ActivityPanel } from './activity.js';
import { bytes, count, digits, el, replace, short } from './dom.js';
import { Colors, stateOf, states } from './picture/colors.js';
import { paintCell } from './picture/paint.js';
import { Picture } from './picture/picture.js';
import { TimeView } from './time.js';
import { WhatIfView } from './whatif.js';

const mostRows = 200; // of the list
const nodeMarks = [
  ['cordoned', 'Cordoned'], ['tainted', 'Tainted'], ['maintained', 'In maintenance'], ['blocked', 'Blocked pods'], ['notready', 'Not ready'],
];

export class Stage {
  constructor(app) {
    this.app = app;
    this.colors = new Colors();
    this.swatches = new Map(); // the canvases of the legend, which take much memory until they are collected
    this.colors.setDark(app.dark);
    this.picture = new Picture(this.colors, {
      select: (node, pod) => this.select(node, pod), describe: (node, pod) => this.describe(node, pod),
      announce: (text) => app.announce(text), zoomed: () => this.showZoom(),
    });
    this.makeToolbar();
    this.numbers = el('ul', { class: 'numbers', 'aria-label': 'Numbers' });
    this.legend = el('ul', { class: 'legend', 'aria-label': 'Legend', tabIndex: 0 });
    this.table = el('div', { class: 'list', hidden: true });
    this.foot = el('div', { class: 'foot' });
    this.side = el('aside', { class: 'side', 'aria-label': 'Details', tabIndex: 0 });
    this.area = el('div', { class: 'area' }, this.picture.element, this.table, this.foot, this.legend);
    this.heading = el('h1', { class: 'hidden' });
    const help = el('p', { id: 'picture-help', class: 'hidden' }, 'Arrow keys go from node to node. Enter opens a node. Plus and minus zoom. '
      + 'The list has the same content as text.');
    this.element = el('div', { class: 'stage' }, this.heading, help, this.toolbar, this.area, this.side);
    this.modes = { cluster: new ActivityPanel(this), time: new TimeView(this), whatif: new WhatIfView(this) };
    this.setModel(app.model);
    app.model.listen((kind) => {
      if (kind !== 'reset') return;
      this.colors.ranks.clear();
      this.colors.rank(this.model);
      this.labels();
      this.mode?.restart?.();
    });
  }

  makeToolbar() {
    this.groupBy = el('select', { id: 'group-by', on: { change: () => this.picture.set({ group: this.groupBy.value }) } });
    this.colorBy = el('div', { class: 'choice', role: 'group', 'aria-label': 'Color by' }, ...['workload', 'state', 'strategy'].map((by) =>
      el('button', { type: 'button', 'aria-pressed': String(by === 'workload'), on: { click: () => this.setColor(by) } }, by[0].toUpperCase() + by.slice(1))));
    this.find = el('input', {
      id: 'find', type: 'search', placeholder: 'Find a pod, node, or workload', 'aria-label': 'Find a pod, node, or workload', autocomplete: 'off',
      spellcheck: 'false', on: { input: () => this.filter() },
    });
    this.zoomText = el('output', { class: 'zoom-text', 'aria-label': 'Zoom' }, '100 %');
    const zoom = (label, text, factor) => el('button', { type: 'button', 'aria-label': label, title: label, on: { click: () => this.picture.zoomBy(factor) } }, text);
    this.asList = el('button', { type: 'button', 'aria-pressed': 'false', on: { click: () => this.toggleList() } }, 'List');
    this.toolbar = el('div', { class: 'toolbar', role: 'group', 'aria-label': 'Picture' },
      el('div', { class: 'field' }, el('label', { for: 'group-by' }, 'Group by'), this.groupBy),
      el('div', { class: 'field' }, el('span', { class: 'label', 'aria-hidden': 'true' }, 'Color by'), this.colorBy),
      this.find,
      el('div', { class: 'choice zoom', role: 'group', 'aria-label': 'Zoom' }, zoom('Zoom out', '−', 0.8), this.zoomText, zoom('Zoom in', '+', 1.25)),
      this.asList);
  }

  setModel(model) {
    this.model = model;
    this.picture.setModel(model);
    this.labels();
  }

  refreshTheme(dark) {
    this.colors.setDark(dark);
    this.picture.refreshTheme();
    this.modes.time.drawChart();
    if (this.mode === this.modes.whatif) this.mode.draw();
    this.legendKey = '';
    this.update();
  }

  /** labels offers the labels of the nodes for grouping. */
  labels() {
    const keys = this.app.model.labelKeys();
    replace(this.groupBy, keys.join(), () => [...keys.map((k) => el('option', { value: k }, k.replace(/^.*\//, ''))), el('option', { value: '' }, 'Nothing')]);
    if (!this.groupChosen && keys.length > 0) {
      this.groupChosen = true;
      this.groupBy.value = keys[0];
      this.picture.set({ group: keys[0] });
    }
    if (this.picture.group) this.groupBy.value = this.picture.group;
  }

  setColor(by) {
    this.colors.by = by;
    this.colors.ranks.clear();
    this.colors.rank(this.model);
    for (const b of this.colorBy.children) b.setAttribute('aria-pressed', String(b.textContent.toLowerCase() === by));
    this.picture.repaint();
    this.showLegend();
  }

  filter() {
    const text = this.find.value.trim().toLowerCase();
    const has = (t) => t.toLowerCase().includes(text);
    this.picture.set({
      match: text ? (pod, node) => has(pod.name) || has(pod.namespace) || has(pod.workload) || has(node.name) : null,
    });
    this.showTable();
  }

  showZoom() { this.zoomText.textContent = `${Math.round(this.picture.zoom * 100)} %`; }

  toggleList() {
    const list = this.table.hidden;
    this.table.hidden = !list;
    this.picture.element.hidden = list;
    this.asList.setAttribute('aria-pressed', String(list));
    this.showTable();
    if (!list) this.picture.relayout();
  }

  show([mode, ...rest]) {
    const next = this.modes[mode];
    if (this.mode !== next) {
      this.mode?.leave?.();
      this.mode = next;
      this.element.dataset.mode = mode;
      this.heading.textContent = { cluster: 'Cluster', time: 'Time', whatif: 'What if' }[mode];
      this.foot.replaceChildren(...[next.foot].filter(Boolean));
      this.side.replaceChildren(next.element);
      next.enter?.();
    }
    next.show?.(rest);
    requestAnimationFrame(() => this.picture.relayout());
    this.update();
  }

  hide() {
    this.mode?.leave?.();
    this.mode = null;
  }

  select(node, pod) { this.mode?.select?.(node, pod); }

  describe(node, pod) {
    if (!pod) {
      const c = node.capacity || {};
      return [node.name, this.app.nodeState(node).join(', '), count(node.pods, 'pod'),
        c.cpu ? `${Math.round((100 * (node.requested?.cpu || 0)) / c.cpu)} % of CPU, ${Math.round((100 * (node.requested?.memory || 0)) / c.memory)} % of memory requested` : '',
      ].filter(Boolean);
    }
    const deferred = this.model.deferred.get(pod.uid);
    return [pod.name, pod.namespace, pod.workload, states[stateOf(pod, this.model)].text, deferred ? `${deferred.strategy}: ${deferred.message}` : ''].filter(Boolean);
  }

  update() {
    if (!this.mode) return;
    this.mode.update?.();
    this.showNumbers();
    this.showLegend();
    this.showTable();
  }

  tick() {
    this.mode?.tick?.();
    this.update();
  }

  showNumbers() {
    const m = this.model;
    const numbers = [
      [m.nodes.size, 'nodes'], [m.pods.size, 'pods'], [m.moving.size, 'moving', 'accent'], [m.deferred.size, 'deferred', m.deferred.size > 0 && 'warn'],
      m.pending.size > 0 && [m.pending.size, 'pending', 'warn'],
    ].filter(Boolean);
    replace(this.numbers, numbers.join(), () => numbers.map(([n, what, tone]) => el('li', { class: tone || '' }, el('strong', { title: digits(n) }, short(n)), ` ${what}`)));
  }

  /** showLegend draws the meanings of the colors and of the shapes of nodes. */
  showLegend() {
    const now = performance.now();
    if (this.legendKey === this.colors.by && now - (this.legendAt || 0) < 2000) return;
    this.legendKey = this.model.ready ? this.colors.by : '';
    this.legendAt = now;
    const entries = this.colors.legend(this.model);
    const key = `${this.app.dark}${JSON.stringify(entries)}`;
    const before = this.swatches;
    this.swatches = new Map(entries.filter((e) => e.color).map((e, i) => {
      const look = `${this.app.dark} ${i} ${e.color} ${e.mark}`;
      return [look, before.get(look) || this.swatch(e)];
    }));
    const swatches = this.swatches.values();
    replace(this.legend, key, () => [
      ...entries.map((e) => el('li', {}, e.color ? swatches.next().value : null, el('span', { class: 'legend-text' }, e.text),
        e.detail ? el('span', { class: 'muted' }, e.detail) : null, e.count === null ? null : el('span', { class: 'muted' }, digits(e.count)))),
      ...nodeMarks.map(([mark, text]) => el('li', { class: mark === 'cordoned' ? 'first-mark' : '' }, el('span', { class: `mark ${mark}`, 'aria-hidden': 'true' }), text)),
    ]);
  }

  swatch(entry) {
    const canvas = el('canvas', { class: 'swatch', width: 24, height: 24, 'aria-hidden': 'true' });
    paintCell(canvas.getContext('2d'), 2, 2, 20, true, entry.color, entry.mark, this.picture.theme);
    return canvas;
  }

  /** showTable shows the nodes as text. */
  showTable() {
    if (this.table.hidden) return;
    const text = this.find.value.trim().toLowerCase();
    const fits = (n) => !text || n.name.toLowerCase().includes(text) || n.cells.some((p) => p && `${p.namespace}/${p.name} ${p.workload}`.toLowerCase().includes(text));
    const nodes = [...this.model.nodes.values()].filter(fits).sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    const rows = nodes.slice(0, mostRows);
    const group = this.picture.group;
    const cells = (n) => [group ? n.labels[group] || '' : '', this.app.nodeState(n).join(', '), digits(n.pods), n.capacity?.cpu ? `${Math.round((100 * n.requested.cpu) / n.capacity.cpu)} %` : '', n.capacity?.memory ? bytes(n.requested.memory) : ''];
    replace(this.table, JSON.stringify([group, rows.map((n) => [n.name, cells(n)])]), () => [
      el('table', {}, el('caption', { class: 'hidden' }, 'Nodes'),
        el('thead', {}, el('tr', {}, ...['Node', group.replace(/^.*\//, '') || 'Group', 'State', 'Pods', 'CPU requested', 'Memory requested'].map((t) => el('th', { scope: 'col' }, t)))),
        el('tbody', {}, ...rows.map((n) => el('tr', {}, el('th', { scope: 'row' }, el('button', { type: 'button', class: 'link', on: { click: () => this.select(n, null) } }, n.name)),
          ...cells(n).map((c) => el('td', {}, c)))))),
      nodes.length > rows.length ? el('p', { class: 'muted' }, `and ${digits(nodes.length - rows.length)} more; search to narrow the list`) : null,
      nodes.length === 0 ? el('p', { class: 'muted' }, 'No node matches.') : null,
    ]);
  }
}
