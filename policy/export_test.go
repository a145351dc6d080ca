package policy

import "testing"

// What tests of other packages about a policy in words share with those of this one.
var (
	Golden     = golden
	KnownTwo   = known
	KnownTen   = ten
	ReadPolicy = func(t *testing.T, text string) Policy { return parse(t, own1+text) }
)

// The beginning of a file, and sections of one.
const (
	Start            = start
	WithPrometheus   = prometheus
	AllOfMaintenance = allOfMaintenance
)
