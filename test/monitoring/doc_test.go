// Package monitoring tests the dashboard, the alerts, and the scrape configuration with the metrics of a live run: `rehome run`,
// a function, and a forwarder on a real control plane. The scrape loop, storage, and PromQL engine of Prometheus run in the test.
//
// It is a separate module, because Prometheus needs hundreds of modules that Rehome does not need.
package monitoring
