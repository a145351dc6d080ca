package schemas

import "time"

// ReceiptType is the CloudEvents type of a [Receipt].
const ReceiptType = "dev.rehome.receipt.v1"

// ReceiptState is the state of a request.
type ReceiptState string

// The states. A request is either rejected, or accepted and later finished.
const (
	RequestAccepted ReceiptState = "accepted" // in progress
	RequestRejected ReceiptState = "rejected" // not executed
	RequestFinished ReceiptState = "finished" // no further action
)

// ReceiptReason is the reason of a state.
//
//schema:grouped
type ReceiptReason string

// The reasons. Each comment begins with the state.
const (
	ReceiptAccepted ReceiptReason = "Accepted" // accepted

	ReceiptMalformed       ReceiptReason = "Malformed"       // rejected: it violates the contract
	ReceiptNotAllowed      ReceiptReason = "NotAllowed"      // rejected: not allowed by the policy, or Rehome runs as a dry run
	ReceiptUnknownTarget   ReceiptReason = "UnknownTarget"   // rejected: the target does not exist
	ReceiptTooManyPods     ReceiptReason = "TooManyPods"     // rejected: more pods than a request may have
	ReceiptTooManyRequests ReceiptReason = "TooManyRequests" // rejected: too many requests of the sender per minute, or open
	ReceiptPolicyUnknown   ReceiptReason = "PolicyUnknown"   // rejected: the policy has no such profile, strategy, or rule
	ReceiptConflict        ReceiptReason = "Conflict"        // rejected: the node is past this stage, or the name is in use

	ReceiptDone             ReceiptReason = "Done"             // finished: all pods are gone or final, or the stage is reached
	ReceiptNothingToDo      ReceiptReason = "NothingToDo"      // finished: no pod to move, or no request to cancel
	ReceiptCancelled        ReceiptReason = "Cancelled"        // finished: it was canceled
	ReceiptDeadlineExceeded ReceiptReason = "DeadlineExceeded" // finished: its deadline has passed
	ReceiptRefused          ReceiptReason = "Refused"          // finished: a guard refused the maintenance
	ReceiptHeldByAnother    ReceiptReason = "HeldByAnother"    // finished: another maintenance holds the node, which stays cordoned
)

var _ = define[Receipt]("watcher, maintenance", nil, Prefix+".receipt.SENDER.NAME")

// Receipt is the answer to a request: one when it is accepted or rejected, and one when an accepted request is finished.
// Evaluations and cancellations are finished at once. The event of the request is its cause.
type Receipt struct {
	// Sender and Name are the words of the NATS subject of the request.
	Sender  string        `json:"sender" empty:"true"`
	Name    string        `json:"name" empty:"true"`
	State   ReceiptState  `json:"state"`
	Reason  ReceiptReason `json:"reason" by:"state"`
	Message string        `json:"message" empty:"true"`
	// Requester, Action, and Target are copied from the request, if it is readable. Over HTTP, the requester is the user.
	Requester string        `json:"requester,omitempty" textMax:"MaxRequester"`
	Action    RequestAction `json:"action,omitempty"`
	Target    *Target       `json:"target,omitempty"`
	// Maintenance is copied from the request. It has the node name even if the request has only a provider ID.
	Maintenance *NodeRequest `json:"maintenance,omitempty"`
	// Profile is the profile whose protections apply.
	Profile string `json:"profile,omitempty"`
	// Deadline is when Rehome stops working on an accepted request to deschedule or to maintain.
	Deadline time.Time `json:"deadline,omitzero"`
	DryRun   bool      `json:"dryRun,omitempty"`
	// Fingerprint is a hash of the user and the content of a request over HTTP, without its deadline. It distinguishes a repeated
	// request from another one with the same name. It is empty if the request came over the bus or is not readable.
	Fingerprint string `json:"fingerprint,omitempty" empty:"true"`
	// Pods are the pods of the target at the time of acceptance, sorted by namespace and name. Later pods are not moved. Only in
	// the accepted receipt.
	Pods []RequestedPod `json:"pods,omitempty" listMax:"MaxRequestPods"`
	// Missing are the named pods that do not exist or have no node. Only in the accepted receipt.
	Missing []PodTarget `json:"missing,omitempty" listMax:"MaxRequestPods"`
	// Gone is the number of pods whose UID no longer exists. Only in the finished receipt.
	Gone int `json:"gone,omitempty"`
	// Remaining are the pods that still exist, including protected ones. Only in the finished receipt.
	Remaining []RemainingPod `json:"remaining,omitempty" listMax:"MaxRequestPods"`
}

// RequestedPod is a pod of the target of a request.
type RequestedPod struct {
	Pod  PodRef `json:"pod"`
	Node string `json:"node"`
	// Protected lists the rules that protect the pod, except the overridden ones. A pod without any has to move.
	Protected []Protection `json:"protected,omitempty"`
}

// RemainingPod is a pod that still exists when its request is finished, with its last verdict.
type RemainingPod struct {
	Pod  PodRef `json:"pod"`
	Node string `json:"node"`
	// Outcome, Reason, and Message are from the last verdict. They are empty if there was none.
	Outcome Outcome    `json:"outcome,omitempty"`
	Reason  ReasonCode `json:"reason,omitempty"`
	Message string     `json:"message,omitempty" empty:"true"`
}

// EventType returns [ReceiptType].
func (Receipt) EventType() string { return ReceiptType }

// About returns requests/SENDER/NAME.
func (r Receipt) About() string { return "requests/" + r.Sender + "/" + r.Name }

// Channel returns rehome.receipt.SENDER.NAME.
func (r Receipt) Channel() string { return channel("receipt", r.Sender, r.Name) }

// Describe returns SENDER/NAME of the request, and the state with its reason.
func (r Receipt) Describe() (about, text string) {
	return r.Sender + "/" + r.Name, string(r.State) + ": " + string(r.Reason) + ": " + r.Message
}
