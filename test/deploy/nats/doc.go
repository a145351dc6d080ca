// Package nats tests the NATS servers of deploy/kustomize/components/nats and their autoscaling. The rendered configuration
// starts real servers, a real API server accepts the Secrets of rehome setup, and the roles use both.
package nats
