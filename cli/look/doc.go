// Package look holds the commands that show something and change nothing: status, loops, events, and explain.
package look
