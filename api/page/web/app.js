// The page: the connection to the API, the banners, and the views.

import { duration, el } from './dom.js';
import { MaintenanceView } from './maintenance.js';
import { Model } from './model.js';
import { forgetToken, hasToken, onUnauthorized, setToken, stream } from './server.js';
import { Stage } from './stage.js';
import { WhyView } from './why.js';
import { taintText } from './words.js';

const missedShown = 10_000; // milliseconds

class App {
  constructor() {
    this.model = new Model();
    this.banners = new Map();
    this.main = document.getElementById('main');
    this.announcer = document.getElementById('announcer');
    this.theme();
    this.stage = new Stage(this);
    this.why = new WhyView(this);
    this.maintenance = new MaintenanceView(this);
    this.model.listen((kind) => {
      if (kind === 'activity') this.activity();
    });
    onUnauthorized((message) => this.signIn(message));
    document.getElementById('sign-in').addEventListener('cancel', (e) => e.preventDefault());
    document.getElementById('sign-in').querySelector('form').addEventListener('submit', (e) => this.signedIn(e));
    document.querySelector('.skip').addEventListener('click', (e) => {
      e.preventDefault(); // the address has the view
      this.main.focus();
    });
    addEventListener('hashchange', () => this.route());
    this.route();
    this.watch = stream('v1/watch', (event, data) => this.message(event, data), (state) => this.connected(state));
    setInterval(() => this.tick(), 1000);
  }

  message(event, data) {
    const { model } = this;
    switch (event) {
      case 'reset':
        model.clear();
        model.ready = false;
        Object.assign(model, { cluster: data.cluster, installation: data.installation, version: data.version, dryRun: data.dryRun, user: data.user });
        document.getElementById('cluster-name').textContent = data.cluster || '';
        document.getElementById('cluster-name').title = [data.installation, data.version].filter(Boolean).join(' ');
        this.banner('dry-run', data.dryRun && { tone: 'info', text: 'Dry run: Rehome decides, but moves nothing.' });
        break;
      case 'nodes': model.applyNodes(data.rows || [], data.gone || []); break;
      case 'pods': model.applyPods(data.rows || [], data.gone || []); break;
      case 'ready':
        model.ready = true;
        model.tell('reset');
        model.tell('nodes');
        if (this.routed) this.current?.update();
        else this.route(); // the address may name a pod or a node
        this.routed = true;
        break;
      case 'activity': model.applyActivity(data); break;
      case 'missed':
        this.banner('missed', { tone: 'info', text: `This page was too slow and missed changes${data.reason ? ` (${data.reason})` : ''}. It shows a fresh state.` });
        setTimeout(() => this.banner('missed', null), missedShown);
        break;
      default: // a message of a newer server
    }
  }

  activity() {
    const a = this.model.activity;
    this.banner('storm', a.storm?.length > 0 && {
      tone: 'bad', text: `The cluster circuit breaker holds all moves: ${a.storm.map((s) => s.message).join('; ')}`,
    });
    const warnings = a.warnings || [];
    const keys = new Set(warnings.map((text) => `warning ${text}`));
    for (const key of [...this.banners.keys()]) if (key.startsWith('warning ') && !keys.has(key)) this.banner(key, null);
    for (const text of warnings) this.banner(`warning ${text}`, { tone: 'bad', text });
    this.current?.update();
  }

  connected(state) {
    this.state = state;
    const chip = document.getElementById('connection');
    chip.textContent = state.up ? 'Live' : state.refused ? 'No access' : 'Offline';
    chip.className = `connection ${state.up ? 'up' : 'down'}`;
    this.offline();
  }

  /** offline shows the banner of a lost connection, with the time of the next try. */
  offline() {
    const { up, refused, error, retryAt } = this.state || { up: true };
    if (up) this.banner('connection', null);
    else if (refused?.status === 401) this.banner('connection', { tone: 'bad', text: 'Sign in to see the cluster.', action: ['Sign in', () => this.signIn('')] });
    else if (refused) this.banner('connection', { tone: 'bad', text: `The API refuses: ${refused.message}`, action: ['Use another token', () => this.signIn('')] });
    else {
      const wait = Math.ceil((retryAt - Date.now()) / 1000);
      this.banner('connection', {
        tone: 'bad', text: `No connection to Rehome (${error}). The picture is not current.`,
        countdown: wait > 0 ? `Next try in ${duration(wait)}.` : 'Connecting.', action: ['Try now', () => this.watch.retry()],
      });
    }
  }

  /** banner shows, changes, or removes a warning. A screen reader reads each new text, but not the countdown. */
  banner(key, what) {
    let shown = this.banners.get(key);
    if (!what) {
      shown?.remove();
      this.banners.delete(key);
      return;
    }
    const [label, act] = what.action || [];
    if (!shown || shown.querySelector('button')?.textContent !== label) {
      const made = el('div', { class: `banner ${what.tone}` }, el('span', {}), what.countdown ? el('span', { role: 'timer' }) : null,
        label ? el('button', { type: 'button', on: { click: act } }, label) : null);
      if (shown) shown.replaceWith(made);
      else document.getElementById('banners').append(made);
      this.banners.set(key, made);
      shown = made;
    }
    const text = shown.querySelector('span');
    if (text.textContent !== what.text) text.textContent = what.text;
    if (what.countdown) shown.querySelector('[role=timer]').textContent = what.countdown;
  }

  signIn(message) {
    const dialog = document.getElementById('sign-in');
    document.getElementById('sign-in-error').textContent = hasToken() && message ? message : '';
    forgetToken();
    if (!dialog.open) dialog.showModal();
  }

  signedIn(event) {
    event.preventDefault();
    const field = document.getElementById('token');
    const token = field.value.trim();
    if (!token) return;
    setToken(token);
    field.value = '';
    document.getElementById('sign-in').close();
    this.routed = false; // the new user may see more
    this.watch.retry();
    this.maintenance.retry();
  }

  route() {
    const [view = 'cluster', ...rest] = location.hash.replace(/^#\/?/, '').split('/').map((part) => {
      try { return decodeURIComponent(part); } catch { return part; }
    });
    const name = ['cluster', 'why', 'time', 'maintenance', 'whatif'].includes(view) ? view : 'cluster';
    const next = { why: this.why, maintenance: this.maintenance }[name] || this.stage;
    for (const link of document.querySelectorAll('#views a')) {
      if (link.hash === `#/${name}`) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    this.title({ cluster: 'Cluster', why: 'Why', time: 'Time', maintenance: 'Maintenance', whatif: 'What if' }[name]);
    if (this.current !== next) {
      this.current?.hide?.();
      this.main.replaceChildren(next.element);
    }
    this.current = next;
    next.show(next === this.stage ? [name, ...rest] : rest);
  }

  title(text) { document.title = `${text} · Rehome`; }

  tick() {
    this.offline();
    this.current?.tick?.();
  }

  announce(text) { this.announcer.textContent = text; }

  /** nodeState lists what is special about a node, in words. */
  nodeState(node) {
    const list = [node.unknown ? 'unknown' : node.ready ? 'ready' : 'not ready'];
    if (node.cordoned) list.push('cordoned');
    if (node.maintenance) list.push(`in maintenance ${node.maintenance}`);
    for (const t of node.taints) list.push(`taint ${taintText(t)}`);
    if (this.model.blocked(node)) list.push('has blocked pods');
    return list;
  }

  theme() {
    const select = document.getElementById('theme');
    const system = matchMedia('(prefers-color-scheme: dark)');
    const apply = () => {
      const value = select.value;
      const dark = value === 'dark' || (value === 'auto' && system.matches);
      document.documentElement.dataset.theme = dark ? 'dark' : 'light';
      this.dark = dark;
      this.stage?.refreshTheme(dark);
    };
    try { select.value = localStorage.getItem('rehome.theme') || 'auto'; } catch { /* storage is blocked */ }
    if (!select.value) select.value = 'auto';
    select.addEventListener('change', () => {
      try { localStorage.setItem('rehome.theme', select.value); } catch { /* storage is blocked */ }
      apply();
    });
    system.addEventListener('change', apply);
    apply();
  }
}

const app = new App();
// For benchmarks and tests: what the page knows, and the times of its frames.
window.rehome = app;
