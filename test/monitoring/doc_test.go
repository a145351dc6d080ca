// Package monitoring holds the dashboard, the alerts and what is scraped against metrics of a live run: `rehome run`, a
// function and a forwarder on a real control plane, scraped by the scrape loop of Prometheus into its own storage, and asked
// with its own PromQL engine.
//
// It is a module of its own, since Prometheus needs hundreds of modules that nothing else in Rehome does.
package monitoring
