package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
)

// The simulated objects. A node has about ten pods.
const (
	nodes       = 20
	deployments = 10
	replicas    = 20
	namespace   = "shop"
)

// budgeted is the Deployment with a PodDisruptionBudget.
const budgeted = "payments"

// patience is the time limit of the demo.
const patience = 6 * time.Minute

// stage has the state of the demo.
type stage struct {
	out     io.Writer // the terminal
	cluster *cluster.Cluster
	client  kubernetes.Interface
	program string // rehome
	policy  string
	dir     string
	page    string // host and port of the page
	keep    bool   // runs until it is stopped
}

func (s *stage) play(ctx context.Context) error {
	ended := ctx
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.fill(ctx); err != nil {
		return err
	}
	rehome, err := s.start(ctx, ended)
	if err != nil {
		return err
	}
	defer rehome.end()
	node, err := s.nodeOf(ctx, budgeted)
	if err != nil {
		return err
	}
	before, err := s.podsOn(ctx, node)
	if err != nil {
		return err
	}
	s.say("%d pods run on %s. They have to move:\n   $ kubectl taint node %s maintenance=soon:NoSchedule",
		len(before), node, node)
	if err := s.taint(ctx, node); err != nil {
		return err
	}
	if err := rehome.said(ctx, "deferred", 1); err != nil {
		return err
	}
	if err := s.emptied(ctx, node, 1); err != nil {
		return err
	}
	if err := rehome.said(ctx, "evicted from "+node, len(before)-1); err != nil {
		return err
	}
	s.say("All but one have moved. The budget of %s holds the last one; now it allows one disruption:\n"+
		"   $ kubectl -n %s patch pdb %s --patch '{\"spec\":{\"minAvailable\":2}}'", budgeted, namespace, budgeted)
	if err := s.allow(ctx); err != nil {
		return err
	}
	if err := s.emptied(ctx, node, 0); err != nil {
		return err
	}
	if err := s.showReplacements(ctx, node, before); err != nil {
		return err
	}
	if !s.keep {
		s.say("To try things yourself, keep the cluster and its page running:\n   $ make demo KEEP=1")
		return nil
	}
	other := "node-007"
	if other == node {
		other = "node-008"
	}
	s.say("The cluster keeps running until Ctrl-C. Watch it at http://%s/. In another terminal, ask why a pod moved, and taint another node:\n"+
		"   $ export KUBECONFIG=%s REHOME_SERVER=http://%s\n   $ bin/rehome explain pod %s -n %s\n"+
		"   $ kubectl taint node %s maintenance=soon:NoSchedule\n   $ bin/rehome status",
		s.page, s.cluster.Kubeconfig(), s.page, anyOf(before).Name, namespace, other)
	<-ended.Done()
	return nil
}

// fill creates the nodes and the pods.
func (s *stage) fill(ctx context.Context) error {
	s.say("Starting %d nodes and %d pods.", nodes, deployments*replicas+3)
	if _, err := s.cluster.AddNodes(ctx, nodes); err != nil {
		return err
	}
	names := []string{budgeted}
	if _, err := s.cluster.AddDeployment(ctx, namespace, budgeted, 3); err != nil {
		return err
	}
	for i := range deployments {
		name := fmt.Sprintf("web-%d", i)
		names = append(names, name)
		if _, err := s.cluster.AddDeployment(ctx, namespace, name, replicas); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := s.cluster.WaitReady(ctx, namespace, name); err != nil {
			return err
		}
	}
	_, err := s.cluster.AddBudget(ctx, namespace, budgeted, budgeted, policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(3))})
	return err
}

// nodeOf returns the node of a pod of a Deployment.
func (s *stage) nodeOf(ctx context.Context, deployment string) (string, error) {
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + deployment})
	if err != nil {
		return "", err
	}
	if len(list.Items) == 0 {
		return "", fmt.Errorf("deployment %s has no pods", deployment)
	}
	return list.Items[0].Spec.NodeName, nil
}

func (s *stage) podsOn(ctx context.Context, node string) (map[types.UID]corev1.Pod, error) {
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	pods := map[types.UID]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.UID] = p
	}
	return pods, nil
}

func (s *stage) taint(ctx context.Context, node string) error {
	patch := `{"spec":{"taints":[{"key":"maintenance","value":"soon","effect":"NoSchedule"}]}}`
	return s.cluster.PatchNode(ctx, node, patch)
}

func (s *stage) allow(ctx context.Context) error {
	patch := `{"spec":{"minAvailable":2}}`
	_, err := s.client.PolicyV1().PodDisruptionBudgets(namespace).Patch(ctx, budgeted, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// emptied waits until the node has this number of pods.
func (s *stage) emptied(ctx context.Context, node string, left int) error {
	what := fmt.Sprintf("%d pods on %s", left, node)
	_, err := s.cluster.WaitPods(ctx, namespace, "", what, func(pods []*corev1.Pod) bool {
		n := 0
		for _, p := range pods {
			if p.Spec.NodeName == node {
				n++
			}
		}
		return n == left
	})
	return err
}

// anyOf returns the first pod by name.
func anyOf(pods map[types.UID]corev1.Pod) corev1.Pod {
	return slices.MinFunc(slices.Collect(maps.Values(pods)), func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}
