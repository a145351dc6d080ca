// Package e2e tests Rehome with a real control plane and a real bus, in readable scenes: a scene sets up a cluster,
// changes something, and compares Rehome's reaction with the expected one.
package e2e
