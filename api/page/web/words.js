// Events and objects in words.

import { words } from './dom.js';

const taint = (t) => (typeof t === 'string' ? t : `${t.key}${t.value ? `=${t.value}` : ''}:${t.effect}`);
export const taintText = taint;

/** describeDelta says what changed. */
export function describeDelta(d) {
  const before = d.before || {};
  const after = d.after || {};
  switch (d.kind) {
    case 'node.added': return 'joined the cluster';
    case 'node.removed': return 'left the cluster';
    case 'node.ready': return `became ${after.ready === 'True' ? 'ready' : 'not ready'}`;
    case 'node.unschedulable': return after.unschedulable ? 'was cordoned' : 'was uncordoned';
    case 'node.taints': {
      const old = (before.taints || []).map(taint);
      const now = (after.taints || []).map(taint);
      const added = now.filter((t) => !old.includes(t));
      const removed = old.filter((t) => !now.includes(t));
      return [added.length && `got the taint ${added.join(', ')}`, removed.length && `lost the taint ${removed.join(', ')}`]
        .filter(Boolean).join(', ') || 'changed taints';
    }
    case 'node.labels':
    case 'pod.labels': return `changed labels: ${entries(before.labels, after.labels)}`;
    case 'node.allocatable': return `changed allocatable resources: ${entries(before.allocatable, after.allocatable)}`;
    case 'node.load': return 'changed its measured load';
    case 'pod.scheduled': return `was scheduled to ${d.node}`;
    case 'pod.deleted': return d.node ? `left ${d.node}` : 'is gone';
    case 'pod.restarted': return `restarted: ${after.restarts ?? 'again'} restarts`;
    case 'pod.failed': return `failed${after.reason ? `: ${after.reason}` : ''}`;
    case 'pod.status': return `changed status${after.phase ? ` to ${after.phase}` : ''}`;
    default: return d.kind;
  }
}

function entries(before = {}, after = {}) {
  const keys = new Set([...Object.keys(before || {}), ...Object.keys(after || {})]);
  return [...keys].map((k) => (after?.[k] === undefined ? `${k} removed` : `${k}=${after[k]}`)).join(', ');
}

export const refText = (r) => `${r.kind} ${r.namespace ? `${r.namespace}/` : ''}${r.name}`;

/** blockerGroups are the groups of reasons that defer a pod, in the order of the view. */
export const blockerGroups = {
  budget: { title: 'Disruption budgets', text: 'A PodDisruptionBudget allows no disruption now.' },
  limit: { title: 'Limits', text: 'A limit of the policy is reached. The pod is tried again when a slot is free.' },
  capacity: { title: 'Capacity', text: 'The replacement has no better place on another node.' },
  breaker: { title: 'Circuit breakers', text: 'A circuit breaker holds the moves until its cause is gone.' },
  server: { title: 'API server', text: 'The API server is unavailable or throttles the evictions.' },
  other: { title: 'Other', text: 'The decision has to be made again.' },
};

export function blockerGroup(reason) {
  if (reason === 'DisruptionBudget') return 'budget';
  if (/^(Limit|Moving|Namespace|WorkloadUnavailable|WorkloadPause|RestartCooldown|RestartRunning)/.test(reason)) return 'limit';
  if (['NodeFit', 'InVain', 'RestartNoRoom'].includes(reason)) return 'capacity';
  if (/^(Loop|Storm)/.test(reason)) return 'breaker';
  if (['Throttled', 'APIUnavailable', 'InternalError'].includes(reason)) return 'server';
  return 'other';
}

export const outcomeText = (o) => ({
  evicted: 'Evicted', restarted: 'Replacement first', requested: 'Handed over', deferred: 'Deferred', rejected: 'Rejected',
  withdrawn: 'Withdrawn', expired: 'Expired', failed: 'Failed', settled: 'Settled',
}[o] || words(o));

export const outcomeTone = (o) => ({
  evicted: 'good', restarted: 'good', requested: 'good', settled: 'good', deferred: 'warn', failed: 'bad', rejected: 'muted',
}[o] || 'muted');

/** describeEvent returns {title, text, tone} of a CloudEvent. */
export function describeEvent(e) {
  const d = e.data || {};
  if (e.type === 'dev.rehome.delta.v1') {
    return { title: `${d.object?.namespace ? `${d.object.namespace}/` : ''}${d.object?.name}`, text: describeDelta(d), tone: 'muted' };
  }
  if (e.type === 'dev.rehome.verdict.v1') {
    const pod = d.intent?.pod || {};
    const end = d.settlement?.node ? `replacement on ${d.settlement.node}` : d.message;
    return {
      title: `${pod.namespace}/${pod.name}`, tone: outcomeTone(d.outcome),
      text: `${outcomeText(d.outcome)}${d.outcome === 'deferred' ? ` (${words(d.reason)})` : ''}: ${d.outcome === 'settled' ? end : d.intent?.reason || d.message}`,
    };
  }
  return { title: e.subject || e.type, text: e.type, tone: 'muted' };
}
