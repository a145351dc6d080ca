// Package chart tests the chart of Helm: what it renders, what it refuses, what the API server makes of it, and that a values
// file for the peer's chart means here what it meant there. It calls helm itself, which make builds into .build/tools.
package chart
