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

// Block is a maintenance that wants a pod off its node, and why it cannot move.
type Block struct {
	Maintenance string `json:"maintenance"`
	Node        string `json:"node"`
	v1alpha1.BlockedPod
	// Said is when that was told last.
	Said   time.Time `json:"said"`
	DryRun bool      `json:"dryRun,omitempty"`
}

// Blocks are the maintenances by which the pod is wanted off the node of the query and cannot move, by their names, as far as
// the history tells and by the last that it tells. A node has the names of twenty such pods at most: those beyond are not found.
func Blocks(ctx context.Context, read Reader, q Query) ([]Block, error) {
	last := map[types.UID]*Block{} // by the UID of the maintenance
	err := read(ctx, []string{schemas.Prefix + ".maintenance.>"}, q.Since, func(e schemas.Event) error {
		if m, err := schemas.Decode[schemas.Maintenance](e); err == nil { // what cannot be read is left out
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

// blockIn is why the pod cannot move when a maintenance has told m, after what was known before. nil: it can, or nobody wants
// it to.
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
