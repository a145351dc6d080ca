//go:build !linux && !darwin

package embed

import "errors"

// freeSpace is for systems without statfs, where only an unsupervised rehome on the machine of a user runs.
func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
