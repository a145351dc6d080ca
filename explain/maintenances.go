package explain

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Block is a maintenance that has to move a pod off its node, and the reason why it cannot.
type Block struct {
	Maintenance string `json:"maintenance"`
	Node        string `json:"node"`
	v1alpha1.BlockedPod
	// Said is the time of the last event with this reason.
	Said   time.Time `json:"said"`
	DryRun bool      `json:"dryRun,omitempty"`
}

// Blocks returns the maintenances that have to move the pod off the node of the query and cannot, sorted by name, according to
// the last event of each. An event lists at most twenty such pods per node, so others are not found.
func Blocks(ctx context.Context, read Reader, q Query) ([]Block, error) {
	last := map[types.UID]*Block{} // by the UID of the maintenance
	err := read(ctx, []string{schemas.Prefix + ".maintenance.>"}, q.Since, func(e schemas.Event) error {
		if m, err := schemas.Decode[schemas.Maintenance](e); err == nil { // unreadable events are ignored
			last[m.UID] = q.blockIn(m, e.Time, last[m.UID])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found []Block
	for _, b := range last {
		if b != nil {
			found = append(found, *b)
		}
	}
	slices.SortFunc(found, func(a, b Block) int {
		return cmp.Or(cmp.Compare(a.Maintenance, b.Maintenance), a.Said.Compare(b.Said))
	})
	return found, nil
}

// blockIn returns the reason why the pod cannot move, after an event of a maintenance. before is the earlier reason. nil means
// that nothing blocks the pod, or that the maintenance does not have to move it.
func (q Query) blockIn(m schemas.Maintenance, said time.Time, before *Block) *Block {
	for _, n := range m.Nodes {
		if n.Name != q.Node {
			continue
		}
		for _, b := range n.Blocked {
			if b.Namespace == q.Namespace && b.Name == q.Name {
				return &Block{Maintenance: m.Name, Node: n.Name, BlockedPod: b, Said: said, DryRun: m.DryRun}
			}
		}
		return nil
	}
	if m.Whole || slices.Contains(m.Forgotten, q.Node) {
		return nil
	}
	return before
}
