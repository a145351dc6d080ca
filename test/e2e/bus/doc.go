// Package bus tests what connects the roles: NATS servers, keys, leases, external functions, and hostile clients. Its scenes run
// rehome on a real control plane, often with real NATS servers, and make parts of the system fail.
package bus
