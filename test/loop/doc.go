// Package loop tests the workload circuit breaker over hours of simulated time: a real control plane, a real bus, and an actuator
// in the test process with a clock that the test advances.
package loop
