package notify

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
)

// Kind is the subject of a notification.
type Kind string

// The kinds.
const (
	Moves Kind = "moves" // what followed from a change or a request
	Drain Kind = "drain" // a maintenance has drained nodes, cannot go on, or was refused
	Storm Kind = "storm" // the cluster circuit breaker is open
)

// Notification is one message. Templates read it.
type Notification struct {
	Kind    Kind      `json:"kind"`
	Cluster string    `json:"cluster,omitempty"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Title   string    `json:"title"`
	// Lines are at most [MaxLines] details, the most important ones first, and More is the number of other details.
	Lines []string `json:"lines,omitempty"`
	More  int      `json:"more,omitempty"`
	// The numbers of pods by outcome. Refused pods are protected or have changed. Problems are the pods with a settled
	// verdict other than Replaced.
	Moved    int `json:"moved"`
	Deferred int `json:"deferred"`
	Refused  int `json:"refused"`
	Failed   int `json:"failed"`
	Problems int `json:"problems"`
	// Nodes, Namespaces, and Strategies are at most [MaxNames] names each.
	Nodes       []string `json:"nodes,omitempty"`
	Namespaces  []string `json:"namespaces,omitempty"`
	Strategies  []string `json:"strategies,omitempty"`
	Maintenance string   `json:"maintenance,omitempty"`
	Correlation string   `json:"correlation,omitempty"`
	DryRun      bool     `json:"dryRun,omitempty"`
}

// The limits of a notification.
const (
	MaxLines = 10
	MaxNames = 20
	maxLine  = 240 // characters
	maxTitle = 150 // characters, as Slack allows
)

// Text is the title and the lines as text.
func (n Notification) Text() string {
	return strings.Join(append([]string{n.Title}, n.Details()...), "\n")
}

// Details are the lines, and a line with the number of omitted lines.
func (n Notification) Details() []string {
	lines := append([]string{}, n.Lines...)
	if n.More > 0 {
		lines = append(lines, count(n.More, "more line"))
	}
	return lines
}

// cut shortens text, and replaces characters that are not printable: other programs write reasons and messages.
func cut(text string, most int) string {
	runes := []rune(strings.ToValidUTF8(text, "�"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	if len(runes) > most {
		runes = append(runes[:most-1], '…')
	}
	return string(runes)
}

// toJSON is a function of templates.
func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
