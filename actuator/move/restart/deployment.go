package restart

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// rolledOut says whether every pod of the Deployment, as its controller sees it, is of the newest template, and there
// are as many as it wants.
func rolledOut(d *appsv1.Deployment) bool {
	want, s := replicasOf(d), d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want
}

// complete says whether the Deployment is rolled out and all of its pods are available.
func complete(d *appsv1.Deployment) bool {
	return rolledOut(d) && d.Status.AvailableReplicas == replicasOf(d) && d.Status.UnavailableReplicas == 0
}

// stoppedNone says whether the rollout has stopped no pod yet: there are as many pods of older templates as are wanted.
func stoppedNone(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration < d.Generation || s.Replicas-s.UpdatedReplicas >= replicasOf(d)
}

// exceeded is the reason of the condition Progressing of a rollout that took too long.
const exceeded = "ProgressDeadlineExceeded"

// stuck says whether the controller has given up the newest rollout that it knows of, or cannot make a pod for a while, and why.
func stuck(d *appsv1.Deployment, now time.Time) (string, bool) {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && (c.Status == corev1.ConditionFalse || c.Reason == exceeded) ||
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && now.After(c.LastTransitionTime.Add(moment)) {
			return fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message), true
		}
	}
	return "", false
}

// restarting says whether a restart of this package is still on its way through the pods. The controller, which does it, asks
// no budget when it takes them away one by one.
func restarting(d *appsv1.Deployment) bool { return d.Annotations[restartUndo] != "" && !rolledOut(d) }

// surging says whether the Deployment has one replica more because of a surge. A mark that was left behind, on a
// Deployment with any other number of replicas, counts for nothing.
func surging(d *appsv1.Deployment) bool {
	before, err := strconv.ParseInt(d.Annotations[surgeReplicas], 10, 32)
	return err == nil && replicasOf(d) == int32(before)+1
}

// situation says in words how far the Deployment is.
func situation(d *appsv1.Deployment) string {
	want, s := replicasOf(d), d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not seen the last change yet"
	case surging(d):
		return fmt.Sprintf("it has one replica more than %s until a pod has gone; %d of %d are available",
			d.Annotations[surgeReplicas], s.AvailableReplicas, want)
	case !rolledOut(d):
		return fmt.Sprintf("a rollout is in progress: %d of %d pods are of the newest template, %d are there",
			s.UpdatedReplicas, want, s.Replicas)
	}
	return fmt.Sprintf("%d of %d pods are available", s.AvailableReplicas, want)
}
