package bus

import (
	"reflect"
	"slices"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

// TestTypeWithoutRow compares the rights of a type without a row with the row of maintenances, whose rights other tests use.
func TestTypeWithoutRow(t *testing.T) {
	maintenances := func(all []Noun) Noun {
		return all[slices.IndexFunc(all, func(n Noun) bool { return n.Type == schemas.MaintenanceType })]
	}
	if got, want := maintenances(withPublishers(nil)), maintenances(table); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
