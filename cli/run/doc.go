// Package run holds the commands that start a process: serve, and its health check, ready.
package run
