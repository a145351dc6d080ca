// Package restart lets a Deployment make a replacement before one of its pods goes, in two ways that are both a
// [move.Method]. [Restarter.For] says whether a pod is moved like that, and by which of them.
//
// # Rollout restart
//
// An annotation of the pod template is changed, as kubectl rollout restart does, and the Deployment rolls out anew: it
// stops the old pod once the new one is available. A budget is not asked by a rollout, so only a Deployment that never
// stops a pod before its replacement is available takes part. If the rollout gets stuck, the annotation gets its old
// value: the controller finds the old ReplicaSet by its template and removes what it had made, and the old pod runs on.
//
// # Surge
//
// The Deployment gets one replica more. When that is available and the budget of the pod would let it be evicted, the
// Deployment gets its old number of replicas, and its ReplicaSet removes the pod, which was marked as the cheapest one
// to delete. That is not an eviction: the controller replaces an evicted pod at once, since it still wants one more, so
// a third pod would start only to be removed again; and if the new pod failed at that moment, none would be left. A
// ReplicaSet that is scaled down removes pods that are not ready first, so the old pod survives such a failure. What
// scaling down lacks is the budget, which is why the eviction is asked for as a dry run directly before: the API server
// holds it against the budget and the admission webhooks and changes nothing. A shorter grace period than the pod's own
// is asked for once the pod is going.
//
// An autoscaler would take the replica more away, so its minimum is raised for as long, if its maximum leaves room and
// nobody else manages it.
//
// # What is written on the objects
//
// Each change is one patch that only applies to the version of the Deployment that was looked at. It carries the
// annotations from which a person, or a process that takes over, can see what was done and how to undo it:
//
//	rehome.dev/restarted-at    when the move began; it names the move, and the cooldown counts from it. It stays.
//	rehome.dev/restarted-for   the pod that was to go, as NAME/UID. It stays.
//	rehome.dev/restart-undo    while a rollout is followed: the annotation of the template and its value before, as JSON
//	rehome.dev/surge-replicas  while there is one replica more: the number of replicas before
//
// While a surge is on, there are rehome.dev/surge-min-replicas on an autoscaler, with the minimum before, and
// rehome.dev/surge-cost-before on the pod, with its deletion cost before.
//
// A change by somebody else in the meantime is never fought: the move ends where it is and says so.
package restart
