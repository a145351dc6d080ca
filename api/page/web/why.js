// Why: the timeline of a pod, what keeps a node from being empty, and the deferred pods grouped by blocker.

import { count, duration, el, empty, replace, since, time, timeElement, words } from './dom.js';
import { explainNode, explainPod } from './server.js';
import { blockerGroup, blockerGroups, describeDelta, outcomeText, outcomeTone, refText } from './words.js';

const mostListed = 100; // pods of a blocker, and pods of a node

export const podLink = (namespace, name) => `#/why/pod/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
export const nodeLink = (name) => `#/why/node/${encodeURIComponent(name)}`;

/** load fills an element with the answer of the server. It returns a function that cancels. */
function load(element, ask, show) {
  const abort = new AbortController();
  element.replaceChildren(el('p', { class: 'loading', role: 'status' }, 'Loading'));
  ask(abort.signal).then(
    (answer) => !abort.signal.aborted && element.replaceChildren(...[show(answer)].flat().filter(Boolean)),
    (error) => !abort.signal.aborted && element.replaceChildren(el('p', { class: 'error' }, error.message)),
  );
  return () => abort.abort();
}

/** podExplanation fills an element with the timeline of a pod and what holds it. */
export const podExplanation = (element, namespace, name) =>
  load(element, (signal) => explainPod(namespace, name, signal), (x) => showPod(x));

export const nodeExplanation = (element, name) => load(element, (signal) => explainNode(name, signal), showNode);

const section = (title, ...content) => el('section', { class: 'section' }, el('h3', {}, title), ...content);

function showPod(x) {
  const parts = [section('Timeline', timeline(x))];
  const guards = [
    ...(x.guards || []).flatMap((g) => (g.rules || []).map((r) => [r.rule, r.detail])),
    ...(x.budgets || []).map((b) => [`Budget ${b.name}`, b.allowed > 0 ? `allows ${count(b.allowed, 'disruption')} now` : b.message || 'allows no disruption now']),
    ...(x.held?.storm || []).map((s) => ['Cluster circuit breaker', `open since ${time(s.since)}: ${s.message}`]),
    ...(x.held?.workloadBreakers || []).map((b) => ['Workload circuit breaker', `keeps ${b.strategy} from its pods on ${b.node} until ${time(b.until)}`]),
    ...(x.held?.moves || []).map((m) => ['Move in flight', `${m.pod.namespace}/${m.pod.name} since ${time(m.begun)}; waits for ${m.waitsFor}`]),
    ...(x.held?.maintenances || []).map((b) => [`Maintenance ${b.maintenance}`, [b.reason, b.by, b.message].filter(Boolean).join(': ')]),
  ];
  if (x.pod?.there !== false) {
    parts.push(section('Protections', guards.length === 0 ? el('p', { class: 'muted' }, 'None known.')
      : el('dl', { class: 'facts' }, ...guards.flatMap(([term, text]) => [el('dt', {}, words(term)), el('dd', {}, text)]))));
  }
  if (x.opinions?.length > 0) {
    parts.push(section('What the strategies want now', el('ul', { class: 'plain' }, ...x.opinions.map(opinion)),
      x.replacement ? el('p', { class: 'muted' }, `If it moved now, its replacement ${x.replacement}.`) : null));
  }
  if (x.unknown?.length > 0) {
    parts.push(section('Not known', el('ul', { class: 'plain' }, ...x.unknown.map((u) => el('li', {}, `${u.what}: ${u.why}`)))));
  }
  return parts;
}

function opinion(o) {
  const [tone, text] = o.unknown ? ['muted', `not known: ${o.unknown}`] : o.wants ? ['warn', `wants to move it: ${o.reason}`]
    : o.protected ? ['muted', `would move it without a protection: ${o.reason}`]
      : o.vain ? ['muted', 'leaves it: the replacement has no better place'] : ['good', 'leaves it where it is'];
  return el('li', { class: 'opinion' }, el('span', { class: `dot ${tone}`, 'aria-hidden': 'true' }), el('span', {}, el('strong', {}, o.strategy), ` ${text}`));
}

/** timeline shows each chain: the cause, the decisions, the attempts, and the replacement. */
function timeline(x) {
  const lives = x.history || [];
  if (lives.length === 0) return empty('Nothing happened to this pod', 'Rehome has not tried to move it in the time that the bus keeps.');
  return el('div', {}, ...lives.map((life) => el('div', { class: 'life' },
    life.cameFor ? el('p', { class: 'muted' }, 'It replaced ', el('a', { href: podLink(life.cameFor.namespace, life.cameFor.name) }, life.cameFor.name), ', which was moved.') : null,
    lives.length > 1 ? el('p', { class: 'muted' }, `UID ${life.pod.uid}`) : null,
    el('ol', { class: 'timeline' }, ...(life.chains || []).flatMap((c) => chain(c, life.pod.namespace)), ...(life.changes || []).map(changes)))));
}

const entry = (tone, at, title, ...text) => el('li', { class: `entry ${tone}` }, el('span', { class: 'entry-dot', 'aria-hidden': 'true' }),
  el('div', { class: 'entry-head' }, el('strong', {}, title), timeElement(at)), ...text.filter(Boolean));

const line = (text, ...more) => el('p', {}, text, ...more);

function chain(c, namespace) {
  const began = new Date(c.began).getTime();
  const after = (t) => `+${duration((new Date(t).getTime() - began) / 1000)}`;
  const cause = c.delta
    ? entry('cause', c.began, 'Cause', line(`${refText(c.delta.object)} ${describeDelta(c.delta)}`))
    : entry('cause', c.began, 'Cause', line(c.without || 'not known'));
  return [cause, ...c.steps.flatMap((s) => step(s, after, namespace))];
}

function step(s, after, namespace) {
  const list = [entry('decision', s.time, 'Decision', line(`${s.strategy} wants to move it${s.node ? ` off ${s.node}` : ''}: ${s.why}`),
    el('p', { class: 'muted' }, `${after(s.time)} · profile ${s.profile} · ${s.scope}`))];
  if (!s.outcome) {
    list.push(entry('muted', s.time, 'No verdict yet'));
    return list;
  }
  if (s.outcome !== 'settled') {
    const title = `${outcomeText(s.outcome)}${s.dryRun ? ' (dry run)' : ''}${s.times > 1 ? ` ${s.times} times` : ''}`;
    list.push(entry(outcomeTone(s.outcome), s.said, title,
      line(`${s.outcome === 'deferred' ? `${words(s.reason)}: ` : ''}${s.message || words(s.reason)}`),
      s.instead ? line(`Instead of ${s.instead.method}: ${s.instead.message}`) : null,
      s.blockers?.length ? line(`Blocked by ${s.blockers.map(refText).join(', ')}`) : null,
      el('p', { class: 'muted' }, [after(s.said), s.method, s.times > 1 && `last at ${time(s.last)}`,
        s.outcome === 'deferred' && s.again && `next try ${time(s.again)}`].filter(Boolean).join(' · '))));
  }
  if (s.settled) {
    const r = s.settled.replacement;
    list.push(entry(s.settled.reason === 'Replaced' ? 'good' : 'warn', s.settled.time, words(s.settled.reason),
      r ? line('Replacement ', el('a', { href: podLink(r.namespace || namespace, r.name) }, r.name), s.settled.node ? ` on ${s.settled.node}` : '')
        : line(s.settled.message),
      el('p', { class: 'muted' }, `${after(s.settled.time)} · ${duration(s.settled.seconds)} after the move began`)));
  }
  return list;
}

const changes = (c) => entry('muted', c.last, words(c.kind.split('.')[1]), el('p', { class: 'muted' }, `${count(c.times, 'time')}; this caused no move`));

function showNode(x) {
  const staying = new Map();
  for (const s of x.staying || []) {
    const key = `${s.namespace}/${s.name}`;
    if (!staying.has(key)) staying.set(key, []);
    staying.get(key).push(s);
  }
  const byRule = new Map();
  for (const s of x.staying || []) byRule.set(s.rule, (byRule.get(s.rule) || 0) + 1);
  const free = x.pods - staying.size;
  return [
    el('div', { class: 'split', role: 'img', 'aria-label': `${free} of ${x.pods} pods can move now` },
      el('span', { class: 'split-good', style: { 'flex-grow': String(free || 0.0001) } }),
      el('span', { class: 'split-bad', style: { 'flex-grow': String(staying.size || 0.0001) } })),
    el('p', {}, el('strong', {}, `${free} of ${count(x.pods, 'pod')}`), ` ${free === 1 ? 'is' : 'are'} free to move. `, staying.size > 0 ? `${count(staying.size, 'pod')} stay:` : 'Nothing keeps this node from being empty.'),
    byRule.size > 0 ? el('ul', { class: 'chips' }, ...[...byRule].sort((a, b) => b[1] - a[1]).map(([rule, n]) => el('li', {}, `${words(rule)} ${n}`))) : null,
    el('ul', { class: 'rows' }, ...[...staying].slice(0, mostListed).map(([key, reasons]) => el('li', { class: 'row' },
      el('a', { href: podLink(reasons[0].namespace, reasons[0].name) }, key),
      ...reasons.map((r) => el('p', {}, el('strong', {}, words(r.rule)), ` ${r.message}${r.profile ? ` (profile ${r.profile})` : ''}`))))),
    staying.size > mostListed ? el('p', { class: 'muted' }, `and ${staying.size - mostListed} more`) : null,
  ];
}

/** deferralCard says why a pod is deferred, and when it is tried again. */
export const deferralCard = (d) => el('div', { class: 'notice warn' }, el('strong', {}, `Deferred: ${words(d.reason)}`), el('p', {}, d.message),
  d.blockers?.length ? el('p', {}, `Blocked by ${d.blockers.map(refText).join(', ')}`) : null,
  el('p', { class: 'muted' }, `${d.strategy} · since ${time(d.since)} · ${count(d.times, 'try', 'tries')}${nextTry(d)}`));

const nextTry = (d) => (d.again && new Date(d.again) > Date.now() ? ` · next try ${time(d.again)}` : '');

/** The view. */
export class WhyView {
  constructor(app) {
    this.app = app;
    this.list = el('div', { class: 'deferred' });
    this.detail = el('div', { class: 'explanation', tabIndex: -1 });
    this.find = el('input', { type: 'search', id: 'why-find', placeholder: 'namespace/pod or node', autocomplete: 'off', spellcheck: 'false', list: 'why-names' });
    this.names = el('datalist', { id: 'why-names' });
    this.find.addEventListener('input', () => this.suggest());
    const form = el('form', { class: 'find', on: { submit: (e) => this.open(e) } }, el('label', { for: 'why-find' }, 'Explain a pod or a node'),
      el('div', { class: 'input-row' }, this.find, el('button', { type: 'submit', class: 'primary' }, 'Explain')), this.names);
    this.element = el('div', { class: 'page why' },
      el('div', { class: 'why-list' }, el('h1', { class: 'hidden' }, 'Why'), form, el('h2', {}, 'Deferred pods'), this.list),
      el('div', { class: 'why-detail' }, this.detail));
    this.cancel = () => {};
  }

  suggest() {
    const text = this.find.value.trim();
    const found = [];
    for (const name of this.app.model.nodes.keys()) if (name.includes(text)) found.push(name);
    if (text.length > 1) {
      for (const p of this.app.model.pods.values()) {
        if (found.length > 30) break;
        if (`${p.namespace}/${p.name}`.includes(text)) found.push(`${p.namespace}/${p.name}`);
      }
    }
    this.names.replaceChildren(...found.slice(0, 30).map((value) => el('option', { value })));
  }

  open(event) {
    event.preventDefault();
    const text = this.find.value.trim();
    const [namespace, name] = text.split('/');
    if (name) location.hash = podLink(namespace, name);
    else if (text) location.hash = nodeLink(text);
  }

  show([kind, first, second]) {
    this.cancel();
    this.key = '';
    this.app.title(kind === 'pod' ? `${second} · Why` : kind === 'node' ? `${first} · Why` : 'Why');
    this.element.classList.toggle('has-detail', Boolean(kind));
    if (kind === 'pod' && second) this.showPod(first, second);
    else if (kind === 'node' && first) this.showNode(first);
    else {
      this.detail.replaceChildren(empty('Choose a pod or a node',
        'A pod has a timeline: the cause, the decision, each attempt, and the replacement. A node shows what keeps it from being empty.'));
    }
    this.update();
  }

  showPod(namespace, name) {
    const body = el('div', {});
    const pod = [...this.app.model.pods.values()].find((p) => p.name === name && p.namespace === namespace);
    const facts = pod && [pod.phase, pod.node && `on ${pod.node}`, pod.workload, `${since(pod.created * 1000)} old`].filter(Boolean).join(' · ');
    const deferral = pod && this.app.model.deferred.get(pod.uid);
    this.detail.replaceChildren(el('p', { class: 'eyebrow' }, `Pod in ${namespace}`), el('h2', { class: 'name' }, name),
      el('p', { class: 'muted' }, facts || this.missing('pod')),
      pod?.node ? el('p', {}, el('a', { href: nodeLink(pod.node) }, `Explain ${pod.node}`)) : '', deferral ? deferralCard(deferral) : '', body);
    this.cancel = podExplanation(body, namespace, name);
  }

  showNode(name) {
    const body = el('div', {});
    const node = this.app.model.nodes.get(name);
    this.detail.replaceChildren(el('p', { class: 'eyebrow' }, 'Node'), el('h2', { class: 'name' }, name),
      el('p', { class: 'muted' }, node ? this.app.nodeState(node).join(' · ') : this.missing('node')),
      section('What keeps it from being empty', body));
    this.cancel = nodeExplanation(body, name);
  }

  missing(what) { return this.app.model.ready ? `This ${what} is not in the cluster.` : 'Loading'; }

  update() {
    const deferred = this.app.model.activity?.deferred || [];
    const key = JSON.stringify(deferred.map((d) => [d.pod.uid, d.reason, d.times, d.again]));
    replace(this.list, `${this.app.model.ready}${key}`, () => this.groups(deferred));
  }

  groups(deferred) {
    if (!this.app.model.ready) return el('p', { class: 'loading' }, 'Loading');
    if (deferred.length === 0) return empty('No pod is deferred', 'Every pod that should move has moved.');
    const groups = new Map();
    for (const d of deferred) {
      const g = blockerGroup(d.reason);
      const by = d.blockers?.length ? d.blockers.map(refText).join(', ') : words(d.reason);
      if (!groups.has(g)) groups.set(g, new Map());
      if (!groups.get(g).has(by)) groups.get(g).set(by, []);
      groups.get(g).get(by).push(d);
    }
    return Object.keys(blockerGroups).filter((g) => groups.has(g)).map((g) => {
      const blockers = [...groups.get(g)];
      const total = blockers.reduce((n, [, list]) => n + list.length, 0);
      return el('section', { class: 'card group' },
        el('div', { class: 'group-head' }, el('h3', {}, blockerGroups[g].title), el('span', { class: 'badge warn' }, count(total, 'pod'))),
        el('p', { class: 'muted' }, blockerGroups[g].text),
        ...blockers.sort((a, b) => b[1].length - a[1].length).map(([by, list]) => el('details', { id: `blocker-${by}`, open: total <= 12 || undefined },
          el('summary', {}, el('span', { class: 'summary-name' }, by), el('span', { class: 'badge' }, String(list.length))),
          el('ul', { class: 'rows' }, ...list.slice(0, mostListed).map((d) => el('li', { class: 'row' },
            el('a', { href: podLink(d.pod.namespace, d.pod.name) }, `${d.pod.namespace}/${d.pod.name}`),
            el('p', { class: 'muted' }, `${d.strategy} · on ${d.node} · since ${time(d.since)}${nextTry(d)}`)))),
          list.length > mostListed ? el('p', { class: 'muted' }, `and ${list.length - mostListed} more`) : null)));
    });
  }
}
