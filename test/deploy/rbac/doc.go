// Package rbac tests deploy/kustomize/rbac: that the rights there are enough for all that Rehome does, and that none is too
// many.
//
// That they are enough: each role runs as a process with the token of its account, all of its features are used, and the API
// server's audit log has no request of it that was forbidden. That none is too many: the same log has a use of each, and when
// one is taken away, a process that lacks it fails at something and says which one is missing.
package rbac
