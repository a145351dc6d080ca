package schemas

import "time"

// ReceiptType is the CloudEvents type of a [Receipt].
const ReceiptType = "dev.rehome.receipt.v1"

// ReceiptState says how far a request has come.
type ReceiptState string

// The states. A request is rejected or accepted; when it was accepted, it is finished later.
const (
	RequestAccepted ReceiptState = "accepted" // it is being worked on
	RequestRejected ReceiptState = "rejected" // nothing is done
	RequestFinished ReceiptState = "finished" // nothing more is done
)

// ReceiptStates lists every state.
func ReceiptStates() []ReceiptState {
	return []ReceiptState{RequestAccepted, RequestRejected, RequestFinished}
}

// ReceiptReason says for machines why a request is in its state.
type ReceiptReason string

// The reasons, by the state they belong to.
const (
	ReceiptAccepted ReceiptReason = "Accepted" // accepted

	ReceiptMalformed       ReceiptReason = "Malformed"       // rejected: it is not what the contract asks for
	ReceiptNotAllowed      ReceiptReason = "NotAllowed"      // rejected: not to this sender by the policy, or in a dry run
	ReceiptUnknownTarget   ReceiptReason = "UnknownTarget"   // rejected: there is nothing of that name
	ReceiptTooManyPods     ReceiptReason = "TooManyPods"     // rejected: more pods than one request may have
	ReceiptTooManyRequests ReceiptReason = "TooManyRequests" // rejected: the sender asks too often, or has too many open
	ReceiptPolicyUnknown   ReceiptReason = "PolicyUnknown"   // rejected: the policy has no such profile, strategy or rule
	ReceiptConflict        ReceiptReason = "Conflict"        // rejected: the node is past that stage, or another request has the name

	ReceiptDone             ReceiptReason = "Done"             // finished: every pod has a last word, the node is as far as wanted
	ReceiptNothingToDo      ReceiptReason = "NothingToDo"      // finished: there was no pod to move, or no request to cancel
	ReceiptCancelled        ReceiptReason = "Cancelled"        // finished: it was given up
	ReceiptDeadlineExceeded ReceiptReason = "DeadlineExceeded" // finished: its time is over
	ReceiptRefused          ReceiptReason = "Refused"          // finished: a guard refused the maintenance, and nothing was done
	ReceiptHeldByAnother    ReceiptReason = "HeldByAnother"    // finished: another maintenance holds the node, which stays cordoned
)

// Receipt is the answer to a request: one when it is accepted or rejected, and one when an accepted one is finished. An
// evaluation and a cancellation are finished at once. Its cause is the event of the request.
type Receipt struct {
	// Sender and Name are those of the NATS subject of the request.
	Sender  string        `json:"sender"`
	Name    string        `json:"name"`
	State   ReceiptState  `json:"state"`
	Reason  ReceiptReason `json:"reason"`
	Message string        `json:"message"`
	// Action and Target are those of the request, where it could be read.
	Action RequestAction `json:"action,omitempty"`
	Target *Target       `json:"target,omitempty"`
	// Maintenance is that of the request, with the name of the node also where the request has its provider ID alone.
	Maintenance *NodeRequest `json:"maintenance,omitempty"`
	// Profile is the one whose protections hold.
	Profile string `json:"profile,omitempty"`
	// Deadline is when what is left is given up, of an accepted request to deschedule or to maintain.
	Deadline time.Time `json:"deadline,omitzero"`
	DryRun   bool      `json:"dryRun,omitempty"`
	// Fingerprint is a hash of the user and the content of a request over HTTP, without its deadline. It tells a repeated request
	// from another one of the same name. Empty: the request came over the bus, or could not be read.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Pods are those that were found when the request was accepted, in the order of namespaces and names. Later ones are not
	// moved. Only in the accepted receipt.
	Pods []RequestedPod `json:"pods,omitempty"`
	// Missing are those that the request names and that were not there, or run on no node. Only in the accepted receipt.
	Missing []PodTarget `json:"missing,omitempty"`
	// Gone is how many of the pods are no longer there under their UIDs. Only in the finished receipt.
	Gone int `json:"gone,omitempty"`
	// Remaining are the pods that are still there, protected ones included. Only in the finished receipt.
	Remaining []RemainingPod `json:"remaining,omitempty"`
}

// RequestedPod is a pod that was found for a request.
type RequestedPod struct {
	Pod  PodRef `json:"pod"`
	Node string `json:"node"`
	// Protected lists what forbids to move the pod, without the rules that the request overrides. Empty: it is to be moved.
	Protected []Protection `json:"protected,omitempty"`
}

// RemainingPod is a pod that is still there when its request is finished, with the last verdict on it.
type RemainingPod struct {
	Pod  PodRef `json:"pod"`
	Node string `json:"node"`
	// Outcome, Reason and Message are those of the last verdict. Empty: there was none.
	Outcome Outcome    `json:"outcome,omitempty"`
	Reason  ReasonCode `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
}

// EventType returns [ReceiptType].
func (Receipt) EventType() string { return ReceiptType }

// About is requests/SENDER/NAME.
func (r Receipt) About() string { return "requests/" + r.Sender + "/" + r.Name }

// Channel is rehome.receipt.SENDER.NAME.
func (r Receipt) Channel() string { return channel("receipt", r.Sender, r.Name) }
