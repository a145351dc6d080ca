// Package notify turns events into few messages for people: one for each drain, each storm, and each chain of moves, instead of
// one for each pod.
//
//	event ──Digest.Add──▶ group ──Digest.Due──▶ Notification ──Template.Render──▶ body for Slack, Teams, or a webhook
//
//	digest.go        Digest: groups of related events, and the texts that were sent
//	group.go         one group, and its Notification
//	notification.go  Notification, which templates read
//	template.go      the templates of Slack, Teams, and webhooks
//
// A group is all that follows from one change (a correlation ID), all of one maintenance, or all that the open cluster circuit
// breaker defers. The package has no clock and sends nothing.
package notify
