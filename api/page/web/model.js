// The state of a cluster: nodes, pods, and the cells of pods on nodes. The live model follows /v1/watch. The model of a replay is a
// copy that events change.

export const READY = 1;
export const LEAVING = 2;
export const BUDGET = 4;

const pairWithin = 30_000; // a new pod of the workload replaces a pod that left at most this long ago
const keptDepartures = 20; // per workload

/** equal compares two objects with text values. */
function equal(a, b) {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => a[k] === b[k]);
}

export class Model {
  constructor() {
    this.listeners = new Set();
    this.clear();
  }

  clear() {
    this.nodes = new Map();
    this.pods = new Map();
    this.pending = new Set(); // pods without a node
    this.words = new Map(); // equal strings are stored once
    this.departures = new Map(); // by workload: where pods left
    this.activity = null;
    this.deferred = new Map(); // by UID
    this.moving = new Map(); // by UID
    this.movingWorkloads = new Map(); // by workload: moves in flight
    this.strategies = new Map(); // by UID: the strategy that moved the pod or its predecessor
    this.workloads = new Map(); // by key: the number of pods
    this.mostPods = 0;
  }

  /** listen calls listener(kind, value) on changes: nodes, tile, travel, activity, reset. */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(kind, value) { for (const listener of this.listeners) listener(kind, value); }

  once(text) {
    const known = this.words.get(text);
    if (known !== undefined) return known;
    this.words.set(text, text);
    return text;
  }

  /** applyNodes takes rows of nodes, and names of nodes that are gone. A gone node is unknown until its last pod leaves. */
  applyNodes(rows, gone = []) {
    let structure = false;
    for (const row of rows) {
      if (this.user && !this.user.nodes) row.ready = true; // the user sees only names
      const before = this.nodes.get(row.name);
      const node = before || { cells: [], free: [], pods: 0 };
      const labels = before && equal(before.labels, row.labels || {}) ? before.labels : row.labels || {};
      structure ||= !before || before.labels !== labels;
      Object.assign(node, { maintenance: undefined }, row, { unknown: false }); // a row has no empty maintenance
      node.taints = row.taints || [];
      node.labels = labels;
      if (!before) this.nodes.set(row.name, node);
      this.tell('tile', node);
    }
    for (const name of gone) {
      const node = this.nodes.get(name);
      if (node?.pods > 0) {
        Object.assign(node, { unknown: true, ready: false });
        this.tell('tile', node);
      } else structure = this.nodes.delete(name) || structure;
    }
    if (structure) this.tell('nodes');
  }

  /** applyPods takes rows of pods, and UIDs of pods that are gone. Gone pods come first, so that their cells are free. */
  applyPods(rows, gone = []) {
    for (const uid of gone) this.removePod(uid);
    for (const [uid, namespace, name, node, workload, phase, flags, created] of rows) {
      this.putPod({ uid, namespace, name, node: this.once(node), workload, phase: this.once(phase), flags, created });
    }
  }

  putPod(pod, quiet = false) {
    const before = this.pods.get(pod.uid);
    if (!before) {
      const { uid, name, phase, flags, created } = pod;
      // key tells workloads of different namespaces apart. It is empty for a pod without a workload.
      const key = pod.workload ? this.once(`${pod.namespace}/${pod.workload}`) : '';
      this.pods.set(uid, {
        uid, name, phase, flags, created, key, namespace: this.once(pod.namespace), workload: this.once(pod.workload), node: '', cell: -1,
      });
      this.workloads.set(key, (this.workloads.get(key) || 0) + 1);
      if (pod.node === '') this.pending.add(pod.uid);
    }
    const now = this.pods.get(pod.uid);
    const from = now.node;
    const leaves = (pod.flags & LEAVING) && !(now.flags & LEAVING) && before;
    now.phase = pod.phase;
    now.flags = pod.flags;
    if (leaves && !quiet) this.depart(now);
    if (pod.node === from) {
      if (from) this.tell('tile', this.nodes.get(from));
      return;
    }
    this.release(now);
    now.node = pod.node;
    this.pending.delete(pod.uid);
    if (pod.node === '') this.pending.add(pod.uid);
    else this.place(now);
    if (!quiet && this.ready) this.arrive(now, from);
  }

  removePod(uid, quiet = false) {
    const pod = this.pods.get(uid);
    if (!pod) return null;
    if (!quiet && pod.node && !(pod.flags & LEAVING)) this.depart(pod);
    this.release(pod);
    const left = this.workloads.get(pod.key) - 1;
    if (left > 0) this.workloads.set(pod.key, left);
    else this.workloads.delete(pod.key);
    this.pods.delete(uid);
    this.pending.delete(uid);
    this.strategies.delete(uid);
    return pod;
  }

  /** place gives the pod the lowest free cell of its node. */
  place(pod) {
    let node = this.nodes.get(pod.node);
    if (!node) { // its node comes later
      node = { name: pod.node, unknown: true, ready: false, cordoned: false, taints: [], labels: {}, cells: [], free: [], pods: 0 };
      this.nodes.set(pod.node, node);
      this.tell('nodes');
    }
    pod.cell = node.free.length > 0 ? node.free.pop() : node.cells.length;
    node.cells[pod.cell] = pod;
    node.pods++;
    if (node.cells.length > this.mostPods) {
      this.mostPods = node.cells.length;
      this.tell('most', node);
    }
    this.tell('tile', node);
  }

  release(pod) {
    const node = pod.node && this.nodes.get(pod.node);
    if (!node || pod.cell < 0) return;
    if (node.cells[pod.cell] === pod) {
      node.cells[pod.cell] = null;
      node.free.push(pod.cell);
      node.free.sort((a, b) => b - a);
      node.pods--;
    }
    pod.cell = -1;
    this.tell('tile', node);
    if (!node.unknown || node.pods > 0) return;
    this.nodes.delete(node.name);
    this.tell('nodes');
  }

  /** depart remembers where a pod left, so that its replacement can travel from there. */
  depart(pod) {
    const { key } = pod;
    if (!key || !this.ready) return;
    const list = this.departures.get(key) || [];
    const move = this.moving.get(pod.uid);
    list.push({
      node: pod.node, cell: pod.cell, at: Date.now(), uid: pod.uid, name: pod.name, strategy: move?.strategy || this.deferred.get(pod.uid)?.strategy,
    });
    if (list.length > keptDepartures) list.shift();
    this.departures.set(key, list);
  }

  /** arrive announces a pod that came to a node, and the place from which it travels. */
  arrive(pod, before) {
    const { key } = pod;
    const list = this.departures.get(key);
    const now = Date.now();
    while (list?.length > 0 && now - list[0].at > pairWithin) list.shift();
    let from = list?.shift();
    if (list?.length === 0) this.departures.delete(key);
    if (!from) { // the replacement comes before the pod leaves
      const move = this.movingWorkloads.get(key)?.find((m) => !m.paired && this.pods.has(m.pod.uid));
      if (move) {
        move.paired = true;
        const old = this.pods.get(move.pod.uid);
        from = { node: old.node, cell: old.cell, at: now, uid: old.uid, name: old.name, strategy: move.strategy };
      }
    }
    if (!from) return;
    if (from.strategy) this.strategies.set(pod.uid, from.strategy);
    if (from.node !== pod.node) this.tell('travel', { pod, from, before });
  }

  applyActivity(activity) {
    const paired = new Set();
    for (const list of this.movingWorkloads.values()) for (const m of list) if (m.paired) paired.add(m.pod.uid);
    const changed = new Set([...this.deferred.keys(), ...this.moving.keys()]);
    this.activity = activity;
    this.deferred = new Map((activity.deferred || []).map((d) => [d.pod.uid, d]));
    this.moving = new Map((activity.moves || []).map((m) => [m.pod.uid, m]));
    this.movingWorkloads = new Map();
    for (const m of this.moving.values()) {
      m.paired = paired.has(m.pod.uid);
      if (!m.workload) continue;
      const key = `${m.pod.namespace}/${m.workload.kind}/${m.workload.name}`;
      this.movingWorkloads.set(key, [...(this.movingWorkloads.get(key) || []), m]);
    }
    for (const uid of [...changed, ...this.deferred.keys(), ...this.moving.keys()]) {
      const node = this.nodes.get(this.pods.get(uid)?.node);
      if (node) this.tell('tile', node);
    }
    this.tell('activity', activity);
  }

  /** blocked reports whether a pod of the node should move and cannot. */
  blocked(node) {
    for (const pod of node.cells) if (pod && this.deferred.has(pod.uid)) return true;
    return false;
  }

  /** copy returns a model with the same nodes and pods, for a replay. */
  copy() {
    const copy = new Model();
    for (const [name, n] of this.nodes) {
      copy.nodes.set(name, { ...n, taints: [...n.taints], cells: [...n.cells], free: [...n.free] });
    }
    for (const [uid, p] of this.pods) {
      const pod = { ...p };
      copy.pods.set(uid, pod);
      if (pod.cell >= 0) copy.nodes.get(pod.node).cells[pod.cell] = pod;
      else copy.pending.add(uid);
    }
    Object.assign(copy, { words: this.words, workloads: new Map(this.workloads), mostPods: this.mostPods, strategies: new Map(this.strategies), ready: true });
    return copy;
  }

  /** labelKeys returns the keys by which nodes can be grouped, the most useful first. */
  labelKeys() {
    const keys = new Map();
    for (const n of this.nodes.values()) for (const k of Object.keys(n.labels)) keys.set(k, (keys.get(k) || 0) + 1);
    const rank = (k) => (/topology.*zone$/.test(k) ? 0 : /pool|nodegroup/.test(k) ? 1 : /hostname/.test(k) ? 3 : 2);
    return [...keys.keys()].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  }
}
