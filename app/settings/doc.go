// Package settings holds what a process is told before it starts: the environment, the policy file, and how to reach the
// cluster and the bus.
//
//	environment ──Read──▶ Settings ──Check──▶ an error, or none
//	                         │
//	                         ├─ kube.go        NewClient, NewKindsClient, NewDynamicClient
//	                         ├─ bus.go         BusOptions, StartServer, SetupOf
//	                         ├─ tls.go         MetricsTLS, RequestsTLS
//	                         └─ policyfile.go  ReadPolicy
package settings
