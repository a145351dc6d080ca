// The picture of the cluster: two canvases in a scrolling area. The lower one has the nodes and is painted again tile by tile. The
// upper one has what moves: travelling pods, planned moves, and the focus.

import { el } from '../dom.js';
import { layout } from './layout.js';
import { centerX, centerY, paintHead, paintTile, readTheme } from './paint.js';

const shortest = 300; // pixels into which all nodes fit; a smaller area scrolls
const travelTime = 1100; // milliseconds
const pulseTime = 500;
const mostTravels = 500;
const paintBudget = 7; // milliseconds a frame, so that frames stay below 16 ms
/** ease starts and ends slowly. p and the result are from 0 to 1. */
const ease = (p) => (p < 0.5 ? 4 * p * p * p : 1 - (2 - 2 * p) ** 3 / 2);
const still = matchMedia('(prefers-reduced-motion: reduce)');

export class Picture {
  /** handlers: select(node, pod), describe(node, pod), zoomed(). */
  constructor(colors, handlers) {
    this.colors = colors;
    this.handlers = handlers;
    this.base = el('canvas', { class: 'layer', 'aria-hidden': 'true' });
    this.top = el('canvas', {
      class: 'layer', tabIndex: 0, role: 'application', 'aria-label': 'Picture of the cluster', 'aria-describedby': 'picture-help',
    });
    this.tip = el('div', { class: 'tip', role: 'presentation', hidden: true });
    this.layers = el('div', { class: 'layers' }, this.base, this.top, this.tip);
    this.space = el('div', { class: 'picture-space' }, this.layers);
    this.element = el('div', { class: 'picture' }, this.space);
    Object.assign(this, {
      group: '', zoom: 1, match: null, queue: [], travels: [], pulses: [], arriving: new Set(), arcs: [], selected: null, focus: null,
      hover: null, frame: 0, frames: [], speed: 1,
    });
    this.stopListening = () => {};
    new ResizeObserver(() => this.relayout()).observe(this.element);
    this.element.addEventListener('scroll', () => this.repaint(), { passive: true });
    this.bindPointer();
    this.top.addEventListener('keydown', (e) => this.key(e));
    this.top.addEventListener('focus', () => this.setFocus(this.focus || this.layout?.tiles[0]?.name));
    this.top.addEventListener('blur', () => this.draw());
    this.refreshTheme();
  }

  setModel(model) {
    this.stopListening();
    this.model = model;
    Object.assign(this, { travels: [], pulses: [], arriving: new Set() });
    this.stopListening = model.listen((kind, value) => this.changed(kind, value));
    this.relayout();
  }

  changed(kind, value) {
    if (kind === 'tile') this.dirty(value.name);
    else if (kind === 'travel') this.travel(value);
    else if (kind === 'nodes' || kind === 'reset') this.relayoutSoon();
    else if (kind === 'most' && this.layout && value.cells.length > this.layout.columns * this.layout.rows && this.layout.tiles.length < 200) this.relayoutSoon();
  }

  refreshTheme() {
    this.theme = readTheme();
    this.clear = true;
    this.repaint();
  }

  set(settings) {
    const before = { group: this.group, zoom: this.zoom };
    Object.assign(this, settings);
    if (before.group !== this.group || before.zoom !== this.zoom) this.relayout();
    else this.repaint();
  }

  relayoutSoon() {
    if (this.relayoutTimer) return;
    this.relayoutTimer = setTimeout(() => {
      this.relayoutTimer = 0;
      this.relayout();
    }, this.model.ready ? 30 : 150);
  }

  relayout() {
    const width = this.element.clientWidth;
    const height = this.element.clientHeight;
    if (!this.model || width < 40 || height < 40) return;
    this.layout = layout(this.model, this.group, width, Math.max(height, shortest), this.zoom);
    this.space.style.height = `${Math.max(height, this.layout.height)}px`;
    this.layers.style.height = `${height}px`;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    for (const canvas of [this.base, this.top]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.ratio = ratio;
    this.context = this.base.getContext('2d', { alpha: false });
    this.over = this.top.getContext('2d');
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.over.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.clear = true;
    this.repaint();
  }

  /** repaint paints every visible tile again. */
  repaint() {
    if (!this.layout) return;
    if (this.paintedAt !== this.element.scrollTop) this.clear = true;
    for (const tile of this.layout.tiles) tile.dirty = false;
    const top = this.element.scrollTop;
    const bottom = top + this.element.clientHeight;
    const { h } = this.layout;
    this.queue = this.layout.tiles.filter((t) => t.y + h > top && t.y < bottom);
    for (const t of this.queue) t.dirty = true;
    this.heads = true;
    this.draw();
  }

  dirty(name) {
    const tile = this.layout?.byName.get(name);
    if (!tile) return;
    tile.node = this.model.nodes.get(name) || tile.node;
    if (tile.dirty) return;
    tile.dirty = true;
    this.queue.push(tile);
    this.draw();
  }

  draw() {
    this.frame ||= requestAnimationFrame((now) => {
      this.frame = 0;
      this.render(now);
    });
  }

  render(now) {
    if (!this.layout || !this.element.isConnected) return;
    const begin = performance.now();
    this.frames.push(now);
    if (this.frames.length > 240) this.frames.splice(0, 120);
    this.renderBase(begin);
    this.renderTop(now);
    if (this.queue.length > 0 || this.travels.length > 0 || this.pulses.length > 0) this.draw();
  }

  renderBase(begin) {
    const ctx = this.context;
    const top = this.element.scrollTop;
    const height = this.element.clientHeight;
    if (this.clear) {
      ctx.fillStyle = this.theme.bg;
      ctx.fillRect(0, 0, this.base.width, this.base.height);
      this.clear = false;
      this.paintedAt = top;
    }
    if (this.heads || begin - (this.headsAt || 0) > 1000) {
      this.heads = false;
      this.headsAt = begin;
      for (const g of this.layout.heads) {
        if (g.y + 30 > top && g.y < top + height) paintHead(ctx, this.theme, g, this.layout, top);
      }
    }
    let at = 0;
    while (at < this.queue.length) {
      const tile = this.queue[at++];
      tile.dirty = false;
      if (tile.y + this.layout.h > top && tile.y < top + height) paintTile(ctx, this, tile, top);
      if (at % 16 === 0 && performance.now() - begin > paintBudget) break;
    }
    this.queue = at >= this.queue.length ? [] : this.queue.slice(at);
  }

  renderTop(now) {
    const ctx = this.over;
    ctx.clearRect(0, 0, this.top.width, this.top.height);
    const top = this.element.scrollTop;
    ctx.save();
    ctx.translate(0, -top);
    for (const arc of this.arcs) this.paintArc(ctx, arc);
    if (this.hover) this.ring(ctx, this.hover.tile, this.theme.muted, 1.5, this.hover.cell);
    if (this.selected) this.ring(ctx, this.layout.byName.get(this.selected.node), this.theme.accent, 2.5, this.selected.cell);
    if (this.focus && document.activeElement === this.top) this.ring(ctx, this.layout.byName.get(this.focus), this.theme.text, 2);
    let kept = 0;
    for (const p of this.pulses) if (this.paintPulse(ctx, p, now)) this.pulses[kept++] = p;
    this.pulses.length = kept;
    kept = 0;
    for (const t of this.travels) if (this.paintTravel(ctx, t, now)) this.travels[kept++] = t;
    this.travels.length = kept;
    ctx.restore();
  }

  ring(ctx, tile, color, width, cell = -1) {
    if (!tile) return;
    const l = this.layout;
    ctx.strokeStyle = color;
    ctx.lineWidth = width;
    ctx.beginPath();
    const out = Math.min(3, l.gap / 2 + 0.5);
    ctx.roundRect(tile.x - out, tile.y - out, l.w + 2 * out, l.h + 2 * out, l.large ? 10 : 4);
    ctx.stroke();
    if (cell < 0) return;
    const size = Math.max(l.cell + 3, 8);
    ctx.strokeRect(centerX(l, tile, cell) - size / 2, centerY(l, tile, cell) - size / 2, size, size);
  }

  /** travel lets a pod travel from the place that its predecessor left. */
  travel({ pod, from }) {
    if (this.travels.length >= mostTravels || !this.layout) return;
    if (still.matches) {
      this.pulses.push({ pod, begin: 0 });
    } else {
      this.arriving.add(pod.uid);
      this.travels.push({ pod, from, begin: 0 });
    }
    this.draw();
  }

  paintTravel(ctx, t, now) {
    t.begin ||= now;
    const l = this.layout;
    const from = l.byName.get(t.from.node);
    const to = l.byName.get(t.to || t.pod.node);
    const part = (now - t.begin) / (travelTime / this.speed);
    if (part >= 1 || !from || !to) {
      this.arriving.delete(t.pod.uid);
      this.dirty(t.pod.node);
      if (to && !t.to) this.pulses.push({ pod: t.pod, begin: now });
      return false;
    }
    const ax = centerX(l, from, t.from.cell);
    const ay = centerY(l, from, t.from.cell);
    const dx = (t.to ? to.x + l.w / 2 : centerX(l, to, t.pod.cell)) - ax;
    const dy = (t.to ? to.y + l.h / 2 : centerY(l, to, t.pod.cell)) - ay;
    const lift = Math.min(70, Math.sqrt(dx * dx + dy * dy) / 4);
    const size = Math.max(l.cell, 5) * (1 + 0.35 * Math.sin(Math.PI * part));
    const head = ease(part);
    const tail = ease(Math.max(0, part - 0.09));
    const x = ax + dx * head;
    const y = ay + dy * head - Math.sin(Math.PI * head) * lift;
    const color = t.color || this.colors.of(t.pod, this.model); // of the theme now
    ctx.globalAlpha = 0.35;
    ctx.strokeStyle = color;
    ctx.lineWidth = size * 0.55;
    ctx.beginPath();
    ctx.moveTo(ax + dx * tail, ay + dy * tail - Math.sin(Math.PI * tail) * lift);
    ctx.lineTo(x, y);
    ctx.stroke();
    ctx.globalAlpha = 1;
    ctx.fillStyle = color;
    ctx.fillRect(x - size / 2, y - size / 2, size, size);
    return true;
  }

  paintPulse(ctx, pulse, now) {
    pulse.begin ||= now;
    const part = (now - pulse.begin) / pulseTime;
    const tile = this.layout.byName.get(pulse.pod.node);
    if (part >= 1 || !tile) return false;
    const x = centerX(this.layout, tile, pulse.pod.cell);
    const y = centerY(this.layout, tile, pulse.pod.cell);
    const size = Math.max(this.layout.cell, 5) + 8 * part;
    ctx.globalAlpha = 1 - part;
    ctx.strokeStyle = this.theme.accent;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x - size / 2, y - size / 2, size, size);
    ctx.globalAlpha = 1;
    return true;
  }

  /** paintArc draws a planned move as an arrow. */
  paintArc(ctx, arc) {
    const from = this.layout.byName.get(arc.node);
    const to = this.layout.byName.get(arc.to);
    if (!from) return;
    const pod = this.model.pods.get(arc.uid);
    const a = { x: centerX(this.layout, from, pod?.cell ?? 0), y: centerY(this.layout, from, pod?.cell ?? 0) };
    ctx.strokeStyle = arc.color;
    ctx.fillStyle = arc.color;
    ctx.lineWidth = 2;
    const size = Math.max(this.layout.cell, 6);
    ctx.strokeRect(a.x - size / 2, a.y - size / 2, size, size);
    if (!to) return;
    const b = { x: to.x + this.layout.w / 2 + ((arc.order % 5) - 2) * this.layout.w * 0.1, y: to.y + this.layout.h * 0.6 };
    const middle = { x: (a.x + b.x) / 2 - (b.y - a.y) * 0.15, y: (a.y + b.y) / 2 - Math.abs(b.x - a.x) * 0.18 - 12 };
    ctx.globalAlpha = this.arcs.length > 60 ? 0.45 : 0.85;
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    ctx.moveTo(a.x, a.y);
    ctx.quadraticCurveTo(middle.x, middle.y, b.x, b.y);
    ctx.stroke();
    const angle = Math.atan2(b.y - middle.y, b.x - middle.x);
    ctx.beginPath();
    ctx.moveTo(b.x + 3 * Math.cos(angle), b.y + 3 * Math.sin(angle));
    ctx.lineTo(b.x - 8 * Math.cos(angle - 0.45), b.y - 8 * Math.sin(angle - 0.45));
    ctx.lineTo(b.x - 8 * Math.cos(angle + 0.45), b.y - 8 * Math.sin(angle + 0.45));
    ctx.fill();
    ctx.globalAlpha = 1;
  }

  /** playArcs lets the pods of planned moves travel to their planned nodes. */
  playArcs() {
    this.travels = this.arcs.filter((a) => a.to && this.model.pods.has(a.uid)).slice(0, mostTravels).map((a, i) => {
      const pod = this.model.pods.get(a.uid);
      return { pod, from: { node: a.node, cell: pod.cell }, to: a.to, begin: performance.now() + i * 25, color: a.color };
    });
    this.draw();
  }

  /** find returns the tile, and the pod if there is one, at a place of the viewport. */
  find(event) {
    const box = this.top.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top + this.element.scrollTop;
    const l = this.layout;
    const tile = l?.tiles.find((t) => x >= t.x && x < t.x + l.w && y >= t.y && y < t.y + l.h);
    if (!tile) return null;
    const column = Math.floor((x - tile.x - l.pad) / l.cell);
    const row = Math.floor((y - tile.y - (l.large ? l.head : l.pad)) / l.cell);
    const inside = column >= 0 && column < l.columns && row >= 0 && row < l.rows;
    const pod = inside ? tile.node.cells[row * l.columns + column] : null;
    return { tile, node: tile.node, pod, cell: pod ? pod.cell : -1 };
  }

  bindPointer() {
    this.top.addEventListener('pointermove', (e) => {
      if (e.pointerType === 'touch') return;
      const found = this.find(e);
      const same = found?.tile === this.hover?.tile && found?.pod === this.hover?.pod;
      this.hover = found;
      if (found) this.showTip(e, found);
      else this.tip.hidden = true;
      this.top.style.cursor = found ? 'pointer' : 'default';
      if (!same) this.draw();
    });
    this.top.addEventListener('pointerleave', () => {
      this.hover = null;
      this.tip.hidden = true;
      this.draw();
    });
    this.top.addEventListener('click', (e) => {
      const found = this.find(e);
      if (found) {
        this.focus = found.node.name;
        this.handlers.select(found.node, found.pod);
      }
    });
    this.top.addEventListener('wheel', (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      this.zoomBy(e.deltaY < 0 ? 1.15 : 1 / 1.15);
    }, { passive: false });
  }

  showTip(event, { node, pod }) {
    this.tip.replaceChildren(...this.handlers.describe(node, pod).map((line, i) => el(i === 0 ? 'strong' : 'span', {}, line)));
    this.tip.hidden = false;
    const box = this.layers.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const right = x + 16 + this.tip.offsetWidth > box.width;
    const below = y + 16 + this.tip.offsetHeight > box.height;
    this.tip.style.transform = `translate(${Math.max(4, right ? x - 12 - this.tip.offsetWidth : x + 14)}px, ${below ? y - 12 - this.tip.offsetHeight : y + 14}px)`;
  }

  zoomBy(factor) {
    this.set({ zoom: Math.max(1, Math.min(24, this.zoom * factor)) });
    if (this.focus) this.reveal(this.focus);
    this.handlers.zoomed?.();
  }

  key(event) {
    const keys = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const tiles = this.layout?.tiles || [];
    if (tiles.length === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const now = this.layout.byName.get(this.focus) || tiles[0];
    if (keys[event.key]) this.setFocus(this.next(now, ...keys[event.key])?.name);
    else if (event.key === 'Home') this.setFocus(tiles[0].name);
    else if (event.key === 'End') this.setFocus(tiles.at(-1).name);
    else if (event.key === 'Enter' || event.key === ' ') this.handlers.select(now.node, null);
    else if (event.key === '+' || event.key === '=') this.zoomBy(1.25);
    else if (event.key === '-') this.zoomBy(0.8);
    else if (event.key === '0') this.set({ zoom: 1 });
    else return;
    event.preventDefault();
  }

  /** next returns the nearest tile in a direction. */
  next(from, dx, dy) {
    let best = null;
    let shortest = Infinity;
    for (const t of this.layout.tiles) {
      const along = (t.x - from.x) * dx + (t.y - from.y) * dy;
      const across = Math.abs((t.x - from.x) * dy) + Math.abs((t.y - from.y) * dx);
      if (along > 0 && along + 3 * across < shortest) {
        shortest = along + 3 * across;
        best = t;
      }
    }
    return best;
  }

  setFocus(name) {
    if (!name) return;
    this.focus = name;
    this.reveal(name);
    const node = this.layout.byName.get(name)?.node;
    if (node) this.handlers.announce(this.handlers.describe(node, null).join(', '));
    this.draw();
  }

  reveal(name) {
    const tile = this.layout?.byName.get(name);
    if (!tile) return;
    const top = this.element.scrollTop;
    const height = this.element.clientHeight;
    if (tile.y < top) this.element.scrollTop = tile.y - 40;
    else if (tile.y + this.layout.h > top + height) this.element.scrollTop = tile.y + this.layout.h - height + 16;
  }

  select(selection) {
    this.selected = selection;
    this.draw();
  }
}
