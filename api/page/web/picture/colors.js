// Colors of pods, by workload, state, or strategy, and the legend that explains them.

import { LEAVING, READY } from '../model.js';

const dark = { workload: ['#6d8bf5', '#e8b04a', '#f27e6b', '#58c4b3', '#62b862', '#f295b8', '#b58af0', '#8fc1ef', '#c49a78', '#a9b665', '#5ec8e5', '#d98bd0'] };
const light = { workload: ['#4464d8', '#d9930d', '#e0563f', '#1f9e8c', '#3f9142', '#d9588c', '#8a55d7', '#4a93cf', '#96673f', '#7c8c2c', '#0f93b5', '#b153a8'] };
const shared = {
  light: { ready: '#3f9f7f', starting: '#c98a00', leaving: '#8b93a5', deferred: '#cf3f3f', moving: '#3b5bdb', ended: '#b9c0cd', none: '#b9c2d0' },
  dark: { ready: '#4cb392', starting: '#e9b44c', leaving: '#7d8698', deferred: '#f0716b', moving: '#7f9cff', ended: '#4a5366', none: '#4b5568' },
};

/** The states of a pod, in the order of the legend. mark is drawn in the cell, so that color is not needed. */
export const states = {
  ready: { text: 'Ready', mark: '' },
  starting: { text: 'Not ready', mark: 'hollow' },
  moving: { text: 'Moving', mark: 'ring' },
  deferred: { text: 'Should move, blocked', mark: 'dot' },
  leaving: { text: 'Terminating', mark: 'slash' },
  ended: { text: 'Ended', mark: 'small' },
};

export function stateOf(pod, model) {
  if (pod.phase === 'Succeeded' || pod.phase === 'Failed') return 'ended';
  if (pod.flags & LEAVING) return 'leaving';
  if (model.moving.has(pod.uid)) return 'moving';
  if (model.deferred.has(pod.uid)) return 'deferred';
  return pod.flags & READY ? 'ready' : 'starting';
}

export const strategyOf = (pod, model) => model.moving.get(pod.uid)?.strategy || model.deferred.get(pod.uid)?.strategy
  || model.strategies.get(pod.uid) || '';

export class Colors {
  constructor() {
    this.by = 'workload';
    this.ranks = new Map();
    this.names = [];
    this.setDark(false);
  }

  setDark(isDark) {
    this.palette = (isDark ? dark : light).workload;
    this.fixed = isDark ? shared.dark : shared.light;
  }

  /** rank gives the colors in the order of the number of pods. The ranks of known names do not change. */
  rank(model) {
    const counts = this.by === 'workload' ? new Map(model.workloads) : new Map();
    if (this.by === 'strategy') {
      for (const uid of new Set([...model.moving.keys(), ...model.deferred.keys(), ...model.strategies.keys()])) {
        const name = model.pods.has(uid) && strategyOf(model.pods.get(uid), model);
        if (name) counts.set(name, (counts.get(name) || 0) + 1);
      }
    }
    counts.delete('');
    this.names = [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
    for (const [name] of this.names) if (!this.ranks.has(name)) this.ranks.set(name, this.ranks.size);
  }

  nameOf(pod, model) {
    return this.by === 'workload' ? pod.key : this.by === 'strategy' ? strategyOf(pod, model) : stateOf(pod, model);
  }

  of(pod, model) {
    if (this.by === 'state') return this.fixed[stateOf(pod, model)];
    const name = this.nameOf(pod, model);
    return name ? this.ofName(name) : this.fixed.none;
  }

  ofName(name) {
    if (!this.ranks.has(name)) this.ranks.set(name, this.ranks.size);
    return this.palette[this.ranks.get(name) % this.palette.length];
  }

  /** legend returns the entries {text, detail, color, mark, count}. */
  legend(model) {
    if (this.by === 'state') {
      const counts = {};
      for (const pod of model.pods.values()) {
        const s = stateOf(pod, model);
        counts[s] = (counts[s] || 0) + 1;
      }
      return Object.entries(states).map(([s, v]) => ({ text: v.text, color: this.fixed[s], mark: v.mark, count: counts[s] || 0 }));
    }
    this.rank(model);
    const entries = this.names.slice(0, this.palette.length).map(([name, count]) => {
      const [namespace, , workload] = name.split('/');
      const isWorkload = this.by === 'workload';
      return { text: isWorkload ? workload : name, detail: isWorkload ? namespace : '', color: this.ofName(name), mark: '', count, name };
    });
    const more = this.names.length - entries.length;
    if (more > 0) entries.push({ text: `${more} more`, detail: 'share these colors', color: '', mark: '', count: null });
    if (this.by === 'strategy') entries.push({ text: 'Not moved', detail: '', color: this.fixed.none, mark: '', count: null });
    return entries;
  }
}
