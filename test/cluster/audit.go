package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// AuditEntry is one finished request in the API server's audit log.
type AuditEntry struct {
	Verb        string // "create", "delete", "patch" …
	User        string // the responsible user: the impersonated one, if any
	Group       string // API group of the resource; empty means the core group.
	Resource    string // "pods"
	Subresource string // "eviction"
	Namespace   string
	Name        string
	Code        int             // HTTP status of the response.
	Stage       string          // Always "ResponseComplete".
	Time        time.Time       // When the response was complete.
	Received    time.Time       // When the request arrived.
	Object      json.RawMessage // Body of the request, or nil.
	UserAgent   string
}

// auditEvent is the part of an audit.k8s.io/v1 Event that becomes an AuditEntry.
type auditEvent struct {
	Stage            string     `json:"stage"`
	Verb             string     `json:"verb"`
	UserAgent        string     `json:"userAgent"`
	User             auditUser  `json:"user"`
	ImpersonatedUser *auditUser `json:"impersonatedUser"`
	ObjectRef        struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject            json.RawMessage `json:"requestObject"`
	RequestReceivedTimestamp time.Time       `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time       `json:"stageTimestamp"`
}

type auditUser struct {
	Username string `json:"username"`
}

// auditReader reads the audit log and continues after the last read line.
type auditReader struct {
	mu      sync.Mutex
	offset  int64
	lines   int
	entries []AuditEntry
}

// Audit returns the new entries of the API server's audit log since the last call, in the order of completion: writes to
// pods/eviction, deletions of pods, and changes of nodes, Deployments, StatefulSets, and DaemonSets without their status. It has
// every request that got a response, including dry runs.
func (c *Cluster) Audit(ctx context.Context) ([]AuditEntry, error) {
	entries, err := c.audit.read(ctx, c.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return entries, nil
}

func (r *auditReader) read(ctx context.Context, path string) ([]AuditEntry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := r.fresh(path)
	if err != nil {
		return nil, err
	}
	for {
		line, rest, complete := bytes.Cut(text, []byte("\n"))
		if !complete { // The rest is not written yet.
			return slices.Clone(r.entries), nil
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("line %d: %w", r.lines+1, err)
		}
		if event.Stage == "ResponseComplete" {
			r.entries = append(r.entries, event.entry())
		}
		r.lines++
		r.offset += int64(len(line)) + 1
		text = rest
	}
}

// fresh returns the new entries of the audit log.
func (r *auditReader) fresh(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(r.offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

func (e auditEvent) entry() AuditEntry {
	user := e.User
	if e.ImpersonatedUser != nil {
		user = *e.ImpersonatedUser
	}
	return AuditEntry{
		Verb:        e.Verb,
		User:        user.Username,
		Group:       e.ObjectRef.Group,
		Resource:    e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace,
		Name:        e.ObjectRef.Name,
		Code:        e.ResponseStatus.Code,
		Stage:       e.Stage,
		Time:        e.StageTimestamp,
		Received:    e.RequestReceivedTimestamp,
		Object:      e.RequestObject,
		UserAgent:   e.UserAgent,
	}
}
