package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// taint puts a taint on a node, or takes all taints off. It returns the time just before the request.
func (s *stage) taint(ctx context.Context, node, key string) (time.Time, error) {
	patch := `{"spec":{"taints":null}}`
	if key != "" {
		patch = `{"spec":{"taints":[{"key":"` + key + `","effect":"NoSchedule"}]}}`
	}
	sent := time.Now()
	return sent, s.cluster.PatchNode(ctx, node, patch)
}

// pod is one pod to be evicted.
type pod struct {
	uid  types.UID
	name string // with its namespace before it
}

func (p pod) split() (namespace, name string) {
	namespace, name, _ = strings.Cut(p.name, "/")
	return namespace, name
}

func list(pods map[types.UID]string) []pod {
	var all []pod
	for uid, name := range pods {
		all = append(all, pod{uid, name})
	}
	return all
}

// evict makes one bare eviction call and returns how long it took.
func (s *stage) evict(ctx context.Context, p pod) (time.Duration, error) {
	began := time.Now()
	namespace, name := p.split()
	err := s.client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.uid}},
	})
	if err != nil {
		return 0, fmt.Errorf("evict pod %s: %w", p.name, err)
	}
	return time.Since(began), nil
}

// call is one eviction as the API server has written it down.
type call struct{ received, completed time.Time }

// calls reads from the audit log which evictions were accepted, by the UID of the pod.
func (s *stage) calls(ctx context.Context) (map[types.UID]call, error) {
	log, err := s.cluster.Audit(ctx)
	if err != nil {
		return nil, err
	}
	found := map[types.UID]call{}
	for _, e := range log {
		if e.Subresource != "eviction" || e.Code != 201 {
			continue
		}
		var body policyv1.Eviction
		if err := json.Unmarshal(e.Object, &body); err != nil {
			return nil, fmt.Errorf("eviction in the audit log: %w", err)
		}
		if o := body.DeleteOptions; o != nil && o.Preconditions != nil && o.Preconditions.UID != nil {
			found[*o.Preconditions.UID] = call{e.Received, e.Time}
		}
	}
	return found, nil
}

// span is when the first and the last call for some pods arrived and were answered.
type span struct{ firstReceived, firstCompleted, lastReceived, lastCompleted time.Time }

// spanOf fails when a pod was not evicted.
func spanOf(calls map[types.UID]call, pods map[types.UID]string) (span, error) {
	var received, completed []time.Time
	for uid, name := range pods {
		c, ok := calls[uid]
		if !ok {
			return span{}, fmt.Errorf("the audit log has no eviction of pod %s", name)
		}
		received, completed = append(received, c.received), append(completed, c.completed)
	}
	if len(received) == 0 {
		return span{}, nil
	}
	return span{
		slices.MinFunc(received, time.Time.Compare), slices.MinFunc(completed, time.Time.Compare),
		slices.MaxFunc(received, time.Time.Compare), slices.MaxFunc(completed, time.Time.Compare),
	}, nil
}
