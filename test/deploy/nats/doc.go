// Package nats tests the NATS servers of deploy/kustomize/components/nats, and the scaling by what waits on them: the
// configuration as it is rendered starts real servers, the Secrets that rehome setup prints are applied to a real API server,
// and the roles do their work with what is in both.
package nats
