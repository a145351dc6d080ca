// Package app composes a process: it makes the roles from the settings and the policy, gives them the bus and the cluster,
// elects leaders, serves, and reloads the policy. It is the only package that knows several roles.
//
//	Run (process.go) ──▶ prepare ─▶ openBus ─▶ start ─▶ follow
//	                                            ├─ newWatcher, newActuator, newDispatcher, functions.Host
//	                                            ├─ lead (lease.go)      one active process for each role
//	                                            ├─ reloader (reload.go) the policy file
//	                                            └─ metrics.go, serving/ /metrics, /healthz, /readyz
//	RunOnce (once.go) ──▶ one round without a bus
package app
