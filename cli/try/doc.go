// Package try holds the commands that need no running Rehome: simulate, policy, and schemas.
package try
