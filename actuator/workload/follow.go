package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	"k8s.io/client-go/tools/cache"
)

// followed is one kind of object that is followed.
type followed struct {
	what      string
	informer  cache.SharedIndexInformer
	transform cache.TransformFunc
	handler   cache.ResourceEventHandler
}

// followed lists all kinds. The informers have no index: the View is theirs.
func (v *View) followed() []followed {
	const all = metav1.NamespaceAll
	none := cache.Indexers{}
	controller := func(old, new *keptController, _ bool) {
		v.learn(func(x *index) touched { return x.learnController(old, new) })
	}
	return []followed{
		follow("ReplicaSets", appsinformers.NewReplicaSetInformer(v.client, all, 0, none), keepReplicaSet, controller),
		follow("Deployments", appsinformers.NewDeploymentInformer(v.client, all, 0, none),
			func(d *appsv1.Deployment) *keptController {
				return keepController("Deployment", d, d.Spec.Replicas)
			}, controller),
		follow("StatefulSets", appsinformers.NewStatefulSetInformer(v.client, all, 0, none),
			func(s *appsv1.StatefulSet) *keptController {
				return keepController("StatefulSet", s, s.Spec.Replicas)
			}, controller),
		follow("ReplicationControllers", coreinformers.NewReplicationControllerInformer(v.client, all, 0, none),
			func(r *corev1.ReplicationController) *keptController {
				return keepController("ReplicationController", r, r.Spec.Replicas)
			}, controller),
		follow("PodDisruptionBudgets", policyinformers.NewPodDisruptionBudgetInformer(v.client, all, 0, none), keepBudget,
			func(old, new *keptBudget, _ bool) {
				v.learn(func(x *index) touched { return x.learnBudget(old, new) })
			}),
		follow("Pods", coreinformers.NewPodInformer(v.client, all, 0, none), keepPod, func(old, new *keptPod, _ bool) {
			v.learn(func(x *index) touched { return x.learnPod(old, new) })
		}),
		follow("Nodes", coreinformers.NewNodeInformer(v.client, 0, none), keepNode, v.learnNode),
	}
}

// kept is a pointer to what is kept of an object.
type kept[K any] interface {
	*K
	GetUID() types.UID
}

// follow has an informer keep of each object only what keep returns, and tells learn what became of it: old or new is
// nil where there is none, and both are of one UID. initial says that the object was there when the informer began.
func follow[O, K any, P kept[K]](
	what string, informer cache.SharedIndexInformer, keep func(*O) P, learn func(old, new P, initial bool),
) followed {
	object := func(o any) P {
		if gone, missed := o.(cache.DeletedFinalStateUnknown); missed {
			o = gone.Obj
		}
		p, _ := o.(P)
		return p
	}
	return followed{
		what: what, informer: informer,
		transform: func(o any) (any, error) { // may see an object again that it has pruned before
			if full, ok := o.(*O); ok {
				return keep(full), nil
			}
			return o, nil
		},
		handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) { learn(nil, object(o), initial) },
			UpdateFunc: func(a, b any) {
				old, new := object(a), object(b)
				if old.GetUID() != new.GetUID() { // made anew under the same name while nobody was watching
					learn(old, nil, false)
					old = nil
				}
				learn(old, new, false)
			},
			DeleteFunc: func(o any) { learn(object(o), nil, false) },
		},
	}
}
