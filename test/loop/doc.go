// Package loop tests the workload circuit breaker over hours that pass in seconds: a real control plane, a real bus, and an
// actuator in the process of the test whose clock is put forward. It is what scenes with the program itself cannot show in time.
package loop
