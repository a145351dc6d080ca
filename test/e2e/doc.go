// Package e2e holds Rehome against a real control plane and a real bus, in scenes that a person can read: a cluster is
// set up, something happens, and what Rehome makes of it is compared with what it should.
//
// All scenes share one control plane, which is built and started first. Each has a namespace, nodes and a policy of its
// own that looks at those nodes alone, so scenes do not see each other; those that wait much more than they work are
// played beside each other. Maintenances are seen by everybody: their scenes are played one by one, and an overseer
// holds every change against what is promised at every moment. The witness is the API server's audit log, not Rehome
// itself. Every event that a scene sees is held against the published schemas.
package e2e
