// Package act holds the commands that request a move, a drain, or an evaluation: request and its subcommands.
package act
