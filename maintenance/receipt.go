package maintenance

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// over returns the end of an accepted request, or nil. A refused maintenance that has begun nothing is completed;
// otherwise it would begin unexpectedly as soon as the guard accepts it.
func (r *requests) over(ctx context.Context, x nodeRequest) (*request.End, error) {
	want := *x.accepted.Maintenance
	name := schemas.RequestedMaintenance(want.Node)
	is, err := r.stored(ctx, name)
	if err != nil {
		return nil, err
	}
	end := judge(want, x.uid, is, r.otherHolder(want.Node))
	if end == nil && !r.now().Before(x.accepted.Deadline) {
		end = late(want, is)
	}
	if end == nil || end.Reason != schemas.ReceiptRefused || begun(is) {
		return end, nil
	}
	_, no, err := r.change(ctx, name, func(now *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.End) {
		if now == nil || now.UID != is.UID || now.Generation != is.Generation {
			return nil, nil
		}
		return completed(now)
	})
	if no != nil { // a dry run leaves the request open
		return nil, err
	}
	return end, err
}

// judge returns the end of a request for a node, or nil if it is open. is is the maintenance, or nil. uid identifies
// the maintenance of the request, or is empty if unknown. other is another maintenance whose mark is on the node, or
// empty. It is pure.
//
//nolint:gocyclo // a flat list of cases
func judge(want schemas.NodeRequest, uid types.UID, is *v1alpha1.NodeMaintenance, other string) *request.End {
	completes := want.Stage == v1alpha1.Complete
	gone := is == nil || uid != "" && is.UID != uid
	switch {
	case gone && completes && other != "":
		return heldBy(other, want.Node)
	case gone && completes:
		return request.NewEnd(schemas.ReceiptDone, "node %s is given back", want.Node)
	case gone:
		return request.NewEnd(schemas.ReceiptCancelled, "the maintenance of node %s is over", want.Node)
	case is.Spec.Stage == v1alpha1.Complete && !completes:
		return request.NewEnd(schemas.ReceiptCancelled, "node %s is given back, as a later request asks", want.Node)
	case completes, is.Status.ObservedGeneration != is.Generation: // the next request is possible when this maintenance is gone
		return nil
	}
	if text := refusal(is.Status); text != "" && !begun(is) {
		return request.NewEnd(schemas.ReceiptRefused, "%s; nothing is done", text)
	}
	for _, n := range is.Status.Nodes {
		if n.Name == want.Node {
			return reached(want, n)
		}
	}
	return nil
}

func heldBy(other, node string) *request.End {
	next := "; set its stage to Complete"
	if other == schemas.SignMaintenance(node) {
		next = " until the drain trigger is gone from the node"
	}
	return request.NewEnd(schemas.ReceiptHeldByAnother, "node %s stays cordoned: maintenance %s holds it%s", node, other, next)
}

// begun reports whether a node of the maintenance was ever claimed.
func begun(is *v1alpha1.NodeMaintenance) bool {
	for _, n := range is.Status.Nodes {
		if n.Start != nil {
			return true
		}
	}
	return false
}

// reached returns the end of a request whose node has that status, or nil if it is open.
func reached(want schemas.NodeRequest, n v1alpha1.NodeStatus) *request.End {
	drains := want.Stage == v1alpha1.Drain
	done := func(text string) *request.End {
		return request.NewEnd(schemas.ReceiptDone, "node %s %s", n.Name, text)
	}
	switch n.Stage {
	case v1alpha1.Waiting, v1alpha1.Claimed, v1alpha1.Returning:
		return nil
	case v1alpha1.Cordoned, v1alpha1.Draining:
		if drains {
			return nil
		}
	case v1alpha1.Held:
		if drains {
			return request.NewEnd(schemas.ReceiptDeadlineExceeded, "node %s stays cordoned: %s", n.Name, n.Message)
		}
	case v1alpha1.Returned:
		switch {
		case drains && n.DrainedAt == nil:
			return request.NewEnd(schemas.ReceiptDeadlineExceeded, "node %s was given back before it was drained", n.Name)
		case drains:
			return done("was drained, and is given back")
		}
		return done("was given back already")
	case v1alpha1.Gone:
		return done("has left the cluster")
	case v1alpha1.IsDrained:
		if n.Pods != nil {
			pods := "pods have"
			if n.Pods.Moved == 1 {
				pods = "pod has"
			}
			return done(fmt.Sprintf("is %s: %d %s left, %d stay", reachedWord(want.Stage), n.Pods.Moved, pods, n.Pods.Staying))
		}
	}
	return done("is " + reachedWord(want.Stage))
}

// late returns the receipt of a request whose deadline has passed.
func late(want schemas.NodeRequest, is *v1alpha1.NodeMaintenance) *request.End {
	text := ""
	if is != nil && is.Status.Summary.Message != "" {
		text = ": " + is.Status.Summary.Message
	}
	return request.NewEnd(schemas.ReceiptDeadlineExceeded, "node %s is not %s yet%s%s",
		want.Node, reachedWord(want.Stage), text, goesOn(is))
}

// goesOn describes how the maintenance of a request continues without it. nil means that it is unknown.
func goesOn(is *v1alpha1.NodeMaintenance) string {
	text := "; its maintenance goes on until a request for Complete"
	switch {
	case is == nil:
	case is.Spec.Stage == v1alpha1.Complete:
		return "; the node is given back as soon as that can be done"
	case is.Spec.Deadline == nil:
	case is.Spec.OnDeadline == v1alpha1.Hold:
		return fmt.Sprintf("%s; when the drain has taken %v no more pods move", text, is.Spec.Deadline.Duration)
	case is.Spec.OnDeadline == v1alpha1.Release:
		return fmt.Sprintf("%s, or the drain has taken %v: then the node is given back", text, is.Spec.Deadline.Duration)
	}
	return text
}

// reachedWord describes a node that has reached a stage.
func reachedWord(stage v1alpha1.Stage) string {
	switch stage {
	case v1alpha1.Cordon:
		return "cordoned"
	case v1alpha1.Drain:
		return "drained"
	default:
		return "given back"
	}
}
