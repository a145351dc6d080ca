// Package settings reads the configuration of a process before it starts: the environment, the policy file, and the
// access to the cluster and the bus.
//
//	environment ──Read──▶ Settings ──Check──▶ an error, or none
//	                         │
//	                         ├─ kube.go        NewClient, NewKindsClient, NewDynamicClient
//	                         ├─ bus.go         BusOptions, StartServer, SetupOf
//	                         ├─ tls.go         MetricsTLS, NetworkTLS
//	                         └─ policyfile.go  ReadPolicy
package settings
