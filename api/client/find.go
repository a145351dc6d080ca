package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// podLabels select the pods of the role api, and the pods with all roles.
const podLabels = "app.kubernetes.io/part-of=rehome,app.kubernetes.io/component in (api,all)"

const (
	labelInstance  = "app.kubernetes.io/instance"
	labelComponent = "app.kubernetes.io/component"
)

// usualNamespace is the namespace in the installation guide.
const usualNamespace = "rehome"

// ErrNoPod means that no pod serves the API.
var ErrNoPod = errors.New("no running pod of Rehome")

// Search says where to look for the pod.
type Search struct {
	// Namespace is the namespace of the installation. Empty: all, or rehome for a user who may not list pods in all.
	Namespace string
	// Leases is the namespace of the leases. Of several pods with all roles, only the leader has something to show.
	Leases string
}

// FindPod finds the pod that serves the API by its labels.
func FindPod(ctx context.Context, c kubernetes.Interface, s Search) (types.NamespacedName, error) {
	pods, where, err := s.list(ctx, c)
	if err != nil {
		return types.NamespacedName{}, fmt.Errorf("find the pod of Rehome: %w", err)
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return types.NamespacedName{}, fmt.Errorf("%w in %s with the labels %s; "+
			"if Rehome runs elsewhere, set --server to the URL of its API", ErrNoPod, where, podLabels)
	}
	if several := installations(pods); len(several) > 1 {
		return types.NamespacedName{}, fmt.Errorf("several installations of Rehome: %s; choose one with REHOME_NAMESPACE",
			strings.Join(several, ", "))
	}
	leader := ""
	if len(pods) > 1 {
		leader = s.leader(ctx, c)
	}
	rank := func(p corev1.Pod) int {
		switch {
		case p.Labels[labelComponent] == "api":
			return 0
		case leader != "" && strings.Contains(leader, p.Name):
			return 1
		}
		return 2
	}
	best := slices.MinFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(unready(a), unready(b)), cmp.Compare(rank(a), rank(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return types.NamespacedName{Namespace: best.Namespace, Name: best.Name}, nil
}

func (s Search) list(ctx context.Context, c kubernetes.Interface) (pods []corev1.Pod, where string, err error) {
	options := metav1.ListOptions{LabelSelector: podLabels}
	list, err := c.CoreV1().Pods(s.Namespace).List(ctx, options)
	where = "namespace " + s.Namespace
	if s.Namespace == "" {
		where = "all namespaces"
		if apierrors.IsForbidden(err) {
			where = "namespace " + usualNamespace
			if list, err = c.CoreV1().Pods(usualNamespace).List(ctx, options); apierrors.IsForbidden(err) {
				err = fmt.Errorf("%w; name the namespace of Rehome with REHOME_NAMESPACE", err)
			}
		}
	}
	if err != nil {
		return nil, where, err
	}
	return list.Items, where, nil
}

// installations returns the namespaces and the instances of the pods.
func installations(pods []corev1.Pod) (all []string) {
	for _, p := range pods {
		name := p.Namespace
		if instance := p.Labels[labelInstance]; instance != "" {
			name += "/" + instance
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func unready(p corev1.Pod) int {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return 0
		}
	}
	return 1
}

// leader returns the holders of the leases of watchers, which contain the names of their pods. Without the right to read leases
// it is empty.
func (s Search) leader(ctx context.Context, c kubernetes.Interface) string {
	list, err := c.CoordinationV1().Leases(s.Leases).List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	var holders []string
	for _, l := range list.Items {
		if strings.HasSuffix(l.Name, "-watcher") && l.Spec.HolderIdentity != nil {
			holders = append(holders, *l.Spec.HolderIdentity)
		}
	}
	return strings.Join(holders, " ")
}
