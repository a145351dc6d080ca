// Package requests tests what users and other programs do with Rehome: requests, the commands that show events and explain pods, the
// commands of the README, and the example programs. Its scenes run rehome on a real control plane.
package requests
