// Package usage marks the errors that the user can correct: a wrong flag, argument, setting, or policy. A command that
// fails with one exits with code 2.
package usage

import "fmt"

// Error is an error of the user: a wrong flag, argument, setting, or policy.
type Error struct{ error }

func (e Error) Unwrap() error { return e.error }

// Wrap makes an error of the user.
func Wrap(err error) error { return Error{err} }

// Errorf formats an error of the user.
func Errorf(format string, arguments ...any) error {
	return Error{fmt.Errorf(format, arguments...)}
}
