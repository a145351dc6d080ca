package bus

import (
	"slices"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestTypeWithoutRow compares the rights of a type without a row with the row of maintenances, whose rights other tests use.
func TestTypeWithoutRow(t *testing.T) {
	maintenances := func(all []Noun) Noun {
		return all[slices.IndexFunc(all, func(n Noun) bool { return n.Type == schemas.MaintenanceType })]
	}
	expect.Equal(t, "row", maintenances(withPublishers(nil)), maintenances(table))
}
