// Package dead holds the commands for dead letters: list, show, retry, and drop.
package dead
