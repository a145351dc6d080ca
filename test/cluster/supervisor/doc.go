// Package supervisor keeps a set of child processes alive exactly as long as a client needs them.
package supervisor
