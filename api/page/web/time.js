// Time: a slider over the history, which replays what happened at any speed.

import { count, duration, el, empty, icon, icons, replace, time, timeElement } from './dom.js';
import { eventOf, mostEvents, moved, Replay } from './history.js';
import { history, stream } from './server.js';
import { describeEvent } from './words.js';

const windows = [['1m', '1 minute'], ['5m', '5 minutes'], ['15m', '15 minutes'], ['1h', '1 hour'], ['6h', '6 hours'], ['24h', '24 hours'], ['72h', '72 hours']];
const speeds = [0.5, 1, 5, 20, 60, 300];
const bars = 120;
const listed = 60; // events in the side panel
const seconds = (w) => Number.parseInt(w, 10) * { m: 60, h: 3600 }[w.at(-1)];

export class TimeView {
  constructor(stage) {
    this.stage = stage;
    this.app = stage.app;
    this.span = el('select', { id: 'time-span', on: { change: () => this.load() } }, ...windows.map(([value, text]) => el('option', { value, selected: value === '15m' || undefined }, text)));
    this.speed = el('select', { id: 'time-speed' }, ...speeds.map((s) => el('option', { value: String(s), selected: s === 5 || undefined }, `${s}×`)));
    this.slider = el('input', { type: 'range', class: 'time-slider', 'aria-label': 'Time', min: '0', max: '1000', step: '1', value: '1000', on: { input: () => this.drag() } });
    this.chart = el('canvas', { class: 'time-chart', 'aria-hidden': 'true' });
    this.play = el('button', { type: 'button', class: 'primary play', 'aria-label': 'Play', on: { click: () => this.toggle() } }, icon(icons.play));
    this.live = el('button', { type: 'button', class: 'live', 'aria-pressed': 'true', on: { click: () => this.goLive() } }, 'Live');
    this.clock = el('output', { class: 'time-clock', 'aria-label': 'Time of the picture' });
    this.foot = el('div', { class: 'time-bar' },
      el('div', { class: 'time-track' }, this.chart, this.slider),
      el('div', { class: 'time-controls' }, this.play, this.clock, this.live,
        el('div', { class: 'field' }, el('label', { for: 'time-speed' }, 'Speed'), this.speed),
        el('div', { class: 'field' }, el('label', { for: 'time-span' }, 'Last'), this.span)));
    this.events = el('div', { class: 'side-now' });
    this.element = el('div', { class: 'side-body' }, el('h2', {}, 'Events'), this.events);
    new ResizeObserver(() => this.drawChart()).observe(this.chart);
  }

  enter() { this.load(); }

  /** restart begins again with a new snapshot of the live model. */
  restart() { this.load(); }

  leave() {
    this.stop();
    this.abort?.abort();
    this.follow?.stop();
    this.replay = null;
    this.stage.setModel(this.app.model);
  }

  select(node, pod) {
    if (!node) return;
    location.hash = pod ? `#/why/pod/${encodeURIComponent(pod.namespace)}/${encodeURIComponent(pod.name)}` : `#/why/node/${encodeURIComponent(node.name)}`;
  }

  /** load reads the events of the chosen span. */
  async load() {
    this.stop();
    this.abort?.abort();
    this.follow?.stop();
    this.replay = null;
    this.stage.setModel(this.app.model);
    const abort = new AbortController();
    this.abort = abort;
    this.isLive = true;
    this.slider.disabled = true;
    this.events.replaceChildren(el('p', { class: 'loading', role: 'status' }, 'Loading the history'));
    this.events.dataset.key = 'loading';
    if (!this.app.model.ready) return; // restart follows
    const list = [];
    let left = 0;
    try {
      await history({ type: 'delta,verdict', since: this.span.value, follow: 'false' }, (_, data) => {
        const e = eventOf(data);
        if (e) list.push(e);
        if (list.length > mostEvents) left += list.splice(0, mostEvents / 10).length;
      }, abort.signal);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.events.replaceChildren(el('p', { class: 'error' }, error.message));
      return;
    }
    this.left = left;
    this.end = Date.now();
    this.begin = left > 0 ? list[0].at : this.end - seconds(this.span.value) * 1000;
    list.sort((a, b) => a.at - b.at);
    this.replay = new Replay(this.app.model, list);
    this.slider.disabled = false;
    this.slider.value = '1000';
    const since = list.at(-1)?.at || this.end;
    this.follow = stream(`v1/events?type=delta,verdict&since=${encodeURIComponent(new Date(since).toISOString())}`, (_, data) => this.added(data), () => {}, { resume: true });
    this.drawChart();
    this.showClock();
    this.update();
  }

  added(data) {
    const e = eventOf(data);
    if (!e || !this.replay?.add(e)) return;
    this.end = Math.max(this.end, e.at);
    this.changed = true;
  }

  at() { return this.isLive ? Date.now() : this.replay?.now ?? Date.now(); }

  drag() {
    if (!this.replay) return;
    this.stop();
    if (Number(this.slider.value) >= 1000) {
      this.goLive();
      return;
    }
    this.past(this.begin + (Number(this.slider.value) / 1000) * (this.end - this.begin));
  }

  /** past shows the state at a time. */
  past(at) {
    if (this.isLive) {
      this.isLive = false;
      this.stage.setModel(this.replay.model);
    }
    this.replay.seek(at);
    this.showClock();
    this.update();
  }

  goLive() {
    this.stop();
    this.isLive = true;
    this.stage.setModel(this.app.model);
    this.end = Date.now();
    this.slider.value = '1000';
    this.drawChart();
    this.showClock();
    this.update();
  }

  toggle() {
    if (this.playing) {
      this.stop();
      return;
    }
    if (!this.replay) return;
    if (this.isLive) this.past(this.begin);
    let last = performance.now();
    this.setPlay(true);
    const step = (now) => {
      if (!this.playing) return;
      const to = this.replay.now + (now - last) * Number(this.speed.value);
      last = now;
      this.replay.seek(Math.min(to, this.end), true);
      this.slider.value = String(((this.replay.now - this.begin) / (this.end - this.begin)) * 1000);
      this.showClock();
      if (now - (this.shown || 0) > 250) {
        this.shown = now;
        this.stage.update();
      }
      if (to >= this.end) this.goLive();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  setPlay(playing) {
    this.playing = playing;
    this.play.setAttribute('aria-label', playing ? 'Pause' : 'Play');
    this.play.replaceChildren(icon(playing ? icons.pause : icons.play));
  }

  stop() { this.setPlay(false); }

  showClock() {
    const at = this.at();
    this.live.setAttribute('aria-pressed', String(this.isLive));
    const text = this.isLive ? `Now, ${time(at)}` : `${time(at)}, ${duration((Date.now() - at) / 1000)} ago`;
    this.clock.textContent = text;
    this.slider.setAttribute('aria-valuetext', text);
  }

  tick() {
    if (this.changed && this.isLive) {
      this.changed = false;
      this.drawChart();
    }
    this.showClock();
  }

  update() {
    if (!this.replay) return;
    const { events } = this.replay;
    const cursor = this.isLive ? events.length : this.replay.cursor;
    const from = Math.max(0, cursor - listed);
    replace(this.events, `${events.length} ${cursor} ${events[cursor - 1]?.id}`, () => {
      if (cursor === 0) return empty('No event before this time', this.left > 0 ? `${count(this.left, 'older event')} left out.` : 'Choose a longer span, or wait for a change.');
      return el('ol', { class: 'rows' }, ...events.slice(from, cursor).reverse().map((e) => {
        const d = describeEvent(e);
        return el('li', { class: 'row event' }, el('div', { class: 'row-head' }, el('span', {}, el('span', { class: `dot ${d.tone}`, 'aria-hidden': 'true' }), el('strong', {}, d.title)), timeElement(e.at)), el('p', { class: 'muted' }, d.text));
      }));
    });
  }

  /** drawChart draws how many moves and changes happened when. */
  drawChart() {
    const ctx = this.chart.getContext('2d');
    const width = this.chart.clientWidth;
    const height = this.chart.clientHeight;
    if (!this.replay || width === 0) return;
    const ratio = devicePixelRatio || 1;
    this.chart.width = width * ratio;
    this.chart.height = height * ratio;
    ctx.scale(ratio, ratio);
    const moves = new Array(bars).fill(0);
    const changes = new Array(bars).fill(0);
    for (const e of this.replay.events) {
      const i = Math.floor(((e.at - this.begin) / (this.end - this.begin)) * bars);
      if (i < 0 || i >= bars) continue;
      if (e.verdict && moved.has(e.data.outcome)) moves[i]++;
      else changes[i]++;
    }
    const most = Math.max(1, ...changes.map((n, i) => n + moves[i]));
    const { theme } = this.stage.picture;
    const step = width / bars;
    const tall = (n) => (n === 0 ? 0 : Math.max(2, (n / most) * height));
    for (let i = 0; i < bars; i++) {
      ctx.fillStyle = theme['tile-line'];
      ctx.fillRect(i * step, height - tall(changes[i] + moves[i]), Math.max(1, step - 1), tall(changes[i] + moves[i]));
      ctx.fillStyle = theme.accent;
      ctx.fillRect(i * step, height - tall(moves[i]), Math.max(1, step - 1), tall(moves[i]));
    }
  }
}
