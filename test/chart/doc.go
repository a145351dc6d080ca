// Package chart tests the Helm chart: rendering, errors, an installation in a real API server, and values files of the
// descheduler chart. It runs helm from .build/tools.
package chart
