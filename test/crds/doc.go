// Package crds tests the CRDs of deploy/crds in a real API server: validation, error messages, defaults, the columns of kubectl,
// and the admission policy.
package crds
