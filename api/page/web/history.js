// A replay: a copy of the live model, and the events that lead to it. Going back undoes events, going forward does them again. Both
// may meet a state that already has the change: a move has verdicts, and also deltas of its pods if a strategy subscribes to them.

import { LEAVING, READY } from './model.js';
import { taintText } from './words.js';

export const mostEvents = 100_000;

export const moved = new Set(['evicted', 'restarted', 'requested']); // outcomes after which a pod leaves

export class Replay {
  /** live is the model at the end of the events. */
  constructor(live, events) {
    this.model = live.copy();
    this.events = events;
    this.cursor = events.length;
    this.ids = new Set(events.map((e) => e.id));
    this.workloads = new Map(); // by UID, and by the start of the name
    this.there = new Set(live.pods.keys()); // UIDs of the pods at the end
    this.known = new Set(this.there); // and of moved pods
    this.settled = new Set(); // UIDs of moved pods whose replacement is known
    for (const p of live.pods.values()) this.workloads.set(start(p), p.workload);
    for (const e of events) this.learn(e);
    this.now = Date.now();
  }

  learn(e) {
    if (!e.verdict) return;
    const { intent, workload: w, settlement } = e.data;
    for (const pod of w ? [intent.pod, settlement?.replacement] : []) if (pod) this.workloads.set(pod.uid, `${w.kind}/${w.name}`);
    this.known.add(intent.pod.uid);
    if (settlement) this.settled.add(intent.pod.uid);
  }

  /** add appends a new event. */
  add(event) {
    if (this.ids.has(event.id) || this.events.length >= mostEvents) return false;
    this.ids.add(event.id);
    this.learn(event);
    if (event.data.settlement?.replacement) this.known.add(event.data.settlement.replacement.uid);
    this.events.push(event);
    return true;
  }

  /** seek goes to a time. With play, pods travel. */
  seek(at, play = false) {
    const { model } = this;
    const from = this.cursor;
    if (!play) model.departures.clear();
    while (this.cursor > 0 && this.events[this.cursor - 1].at > at) this.undo(this.events[--this.cursor]);
    while (this.cursor < this.events.length && this.events[this.cursor].at <= at) this.redo(this.events[this.cursor++], play);
    this.now = at;
    if (this.cursor < from || !play) this.judge();
    if (this.cursor !== from) model.tell('activity', model.activity);
    return this.cursor !== from;
  }

  /** judge finds the pods that were moving or deferred at the time of the cursor. */
  judge() {
    const { model } = this;
    const before = [...model.moving.keys(), ...model.deferred.keys()];
    model.moving.clear();
    model.movingWorkloads.clear();
    model.deferred.clear();
    model.strategies.clear();
    for (let i = 0; i < this.cursor; i++) if (this.events[i].verdict) this.verdict(this.events[i]);
    for (const uid of [...before, ...model.moving.keys(), ...model.deferred.keys()]) this.touch(uid);
  }

  verdict(e) {
    const { model } = this;
    const v = e.data;
    const { uid } = v.intent.pod;
    if (v.dryRun) return;
    const key = v.workload ? `${v.workload.namespace}/${v.workload.kind}/${v.workload.name}` : '';
    const moves = (model.movingWorkloads.get(key) || []).filter((m) => m.pod.uid !== uid);
    model.deferred.delete(uid);
    model.moving.delete(uid);
    if (v.outcome === 'deferred') model.deferred.set(uid, { pod: v.intent.pod, node: v.intent.node, strategy: v.strategy, reason: v.reason, message: v.message });
    if (moved.has(v.outcome)) {
      const move = { pod: v.intent.pod, strategy: v.strategy, node: v.intent.node };
      model.moving.set(uid, move);
      moves.push(move);
    }
    if (key) model.movingWorkloads.set(key, moves);
    if (v.settlement?.replacement) model.strategies.set(v.settlement.replacement.uid, v.strategy);
  }

  touch(uid) {
    const node = this.model.nodes.get(this.model.pods.get(uid)?.node);
    if (node) this.model.tell('tile', node);
  }

  redo(e, play) {
    if (!e.verdict) this.change(e, e.data.after, true, play);
    else {
      this.move(e, play);
      this.verdict(e);
      this.touch(e.data.intent.pod.uid);
    }
  }

  undo(e) {
    if (!e.verdict) this.change(e, e.data.before, false, false);
    else this.moveBack(e);
  }

  /** move puts the replacement in the place of a moved pod. */
  move(e, play) {
    const { intent, outcome, settlement, dryRun } = e.data;
    const ends = settlement || (moved.has(outcome) && !this.settled.has(intent.pod.uid) && !this.there.has(intent.pod.uid));
    if (dryRun || !ends) return;
    const arrived = this.model.moving.get(intent.pod.uid)?.paired; // the replacement has traveled
    const left = this.model.removePod(intent.pod.uid, !play || arrived);
    const to = settlement?.replacement;
    if (to && settlement.node && this.known.has(to.uid)) this.place(to, settlement.node, e, play, left);
  }

  moveBack(e) {
    const { intent, outcome, settlement, dryRun } = e.data;
    if (dryRun || !(settlement || moved.has(outcome))) return;
    const left = settlement?.replacement ? this.model.removePod(settlement.replacement.uid, true) : null;
    this.place(intent.pod, intent.node, e, false, left);
  }

  /** change brings one aspect of an object to the state before or after a delta. */
  change(e, state, forward, play) {
    const { model } = this;
    const d = e.data;
    const { name } = d.object;
    switch (d.kind) {
      case 'pod.scheduled': if (forward) this.put(e, play); else e.pod = model.removePod(d.object.uid, true) || e.pod; break;
      case 'pod.deleted': if (forward) e.pod = model.removePod(d.object.uid, !play) || e.pod; else this.put(e, false); break;
      case 'pod.status': this.flags(d, state); break;
      case 'node.added': if (forward) this.show(e); else this.hide(e, () => true); break;
      case 'node.removed': if (forward) this.hide(e, (pod) => !this.there.has(pod.uid)); else this.show(e); break;
      case 'node.ready': this.set(name, { ready: state?.ready === 'True' }); break;
      case 'node.unschedulable': this.set(name, { cordoned: state?.unschedulable === true }); break;
      case 'node.taints': this.set(name, { taints: (state?.taints || []).map(taintText) }); break;
      default: // it is not in the picture
    }
  }

  set(name, aspect) {
    const node = this.model.nodes.get(name);
    if (!node) return;
    Object.assign(node, aspect);
    this.model.tell('tile', node);
  }

  /** hide removes a node, with the pods that left without an event. A node that has more pods is unknown then. */
  hide(e, left) {
    const { model } = this;
    const { name } = e.data.object;
    const node = model.nodes.get(name);
    if (node && !node.unknown) {
      const { cells, free, pods, ...row } = node;
      e.node = row;
    }
    e.pods = [...model.pods.values()].filter((pod) => pod.node === name && left(pod));
    for (const pod of e.pods) model.removePod(pod.uid, true);
    model.applyNodes([], [name]);
  }

  /** show undoes hide. */
  show(e) {
    this.model.applyNodes([e.node || empty(e.data.object.name)]);
    for (const pod of e.pods || []) this.model.putPod(pod, true);
  }

  put(e, play) {
    const { object, node } = e.data;
    if (node) this.place(object, node, e, play); // else it was never scheduled
  }

  /** place puts a pod on a node, in the place of another one of its workload or of null. */
  place({ uid, namespace, name }, node, e, play, other) {
    const known = e.pod?.uid === uid ? e.pod : null;
    this.model.putPod({
      uid, namespace, name, node, phase: known?.phase || 'Running',
      workload: known?.workload || other?.workload || this.workloads.get(uid) || this.workloads.get(start({ namespace, name })) || '',
      flags: (known?.flags ?? READY) & ~LEAVING, created: known?.created || e.at / 1000,
    }, !play);
  }

  flags(d, state) {
    const pod = this.model.pods.get(d.object.uid);
    if (!pod) return;
    const ready = state?.conditions?.Ready;
    if (ready) pod.flags = ready === 'True' ? pod.flags | READY : pod.flags & ~READY;
    if (state?.phase) pod.phase = state.phase;
    this.touch(d.object.uid);
  }
}

/** start returns the part of a name that pods of a workload share. */
const start = (p) => `${p.namespace}/${p.name.replace(/-[^-]*$/, '')}`;

const empty = (name) => ({ name, ready: true, cordoned: false, taints: [], labels: {} });

/** eventOf makes an entry of a replay from a CloudEvent. null: it does not matter. */
export function eventOf(e) {
  const verdict = e.type === 'dev.rehome.verdict.v1';
  if ((!verdict && e.type !== 'dev.rehome.delta.v1') || !e.data || (verdict && !e.data.intent?.pod)) return null;
  return { id: e.id, at: new Date(e.time).getTime(), verdict, type: e.type, data: e.data };
}
