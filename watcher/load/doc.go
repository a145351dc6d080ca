// Package load measures what nodes and pods really use, as far as strategies ask for it.
//
// # Where it comes from
//
// A [Sampler] asks each of its sources every five seconds: [Kubernetes], which is metrics.k8s.io, or [Prometheus], one of
// them for each query.
//
// Usage of nodes by metrics.k8s.io is smoothed as in kubernetes-sigs/descheduler: the first sample counts as it is, each
// further one a tenth. A figure of Prometheus counts as it is; the query can smooth it.
//
// The usage of pods is asked for only while a strategy needs it, with one list of all pods right after the one of nodes:
// of a cluster in which no node is over-used nobody reads a megabyte every five seconds, and when one is over-used the
// pods are known before it is decided about.
//
// # What is not known
//
// A node that is not in the newest answer is not known and its history is forgotten. When a source does not answer, what
// it said last counts until it is a minute old. The log says once what is wrong, and again when it was right in between.
package load
