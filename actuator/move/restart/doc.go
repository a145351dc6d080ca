// Package restart moves a pod by its Deployment, which makes a replacement before the pod goes.
//
//	Start (restart.go) ──▶ find (find.go) ──▶ eligible (eligible.go) ──▶ save ──▶ first change (step.go)
//	Step  (restart.go) ──▶ look ──▶ followRollout (rollout.go) or followSurge (surge.go) ──▶ carryOut (step.go)
//
// The phase of a move is in its stored state:
//
//	Planned ──▶ Waiting ──────────────────▶ the move is done
//	               │  └──▶ Returning ──────▶ the same, of a surge
//	               └──▶ TakingBack ────────▶ the move is undone
//
// # Rollout restart
//
// An annotation of the pod template is changed, as kubectl rollout restart does, and the Deployment rolls out again: it stops the
// old pod once the new one is available. A rollout ignores budgets, so only a Deployment that never stops a pod before its
// replacement is available takes part. If the rollout gets stuck, the annotation gets its old value: the controller finds the
// old ReplicaSet by its template and removes the new pod, and the old pod runs on.
//
// # Surge
//
// The Deployment gets one replica more. When that is available and the budget of the pod would let it be evicted, the Deployment
// gets its old number of replicas, and its ReplicaSet removes the pod, which has the lowest deletion cost. An eviction would
// not do: the Deployment would replace the pod at once, since it still wants one more. A ReplicaSet that is scaled down removes
// pods that are not ready first, so the old pod survives a failure of the new one. Scaling down ignores budgets, so a dry run of
// the eviction comes directly before it. A Deployment under a HorizontalPodAutoscaler, which would remove the replica again,
// uses a rollout restart.
//
// # Annotations
//
// Each change is one patch for the version of the Deployment that was read. Its annotations show the change and how to undo it by
// hand:
//
//	rehome.dev/restarted-at    when the move began; it identifies the move, and the cooldown counts from it. It stays.
//	rehome.dev/restarted-for   the pod that moves, as NAME/UID. It stays.
//	rehome.dev/restart-undo    during a rollout restart: the annotation of the template and its value before, as JSON
//	rehome.dev/surge-replicas  during a surge: the number of replicas before
//
// During a surge the pod has rehome.dev/surge-cost-before, with its deletion cost before. A change by another client in the
// meantime stays: the move ends where it is and reports it.
package restart
