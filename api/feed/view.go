package feed

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Rights are the rights of a client to see objects.
type Rights struct {
	All, Nodes bool            // the pods of all namespaces, and nodes
	Namespaces map[string]bool // without All: the namespaces whose pods it may see
}

func (r Rights) sees(p PodRow) bool { return p.UID != "" && (r.All || r.Namespaces[p.Namespace]) }

// key returns equal keys for equal rights.
func (r Rights) key() string {
	if r.All {
		return fmt.Sprint("all ", r.Nodes)
	}
	return fmt.Sprint("some ", r.Nodes, " ", strings.Join(slices.Sorted(maps.Keys(r.Namespaces)), " "))
}

const (
	// snapshotAge and snapshotChanges limit how old a snapshot is that another client gets, with the changes since then.
	snapshotAge     = 5 * time.Second
	snapshotChanges = 50
)

// view has the clients with the same rights.
type view struct {
	Rights
	key     string
	clients map[*Client]bool
	// hosts counts the visible pods of each node, without the right to get nodes.
	hosts map[string]int
	// snapshot is the last snapshot, at its time, and since has the messages after it.
	snapshot []*Message
	made     time.Time
	since    []*Message
}

func newView(r Rights, key string) *view {
	return &view{Rights: r, key: key, clients: map[*Client]bool{}}
}

// join adds a client.
func (v *view) join(f *Feed) *Client {
	if v.snapshot == nil || time.Since(v.made) > snapshotAge || len(v.since) > snapshotChanges {
		v.read(f)
	}
	c := &Client{
		Snapshot: slices.Concat(v.snapshot, v.since, []*Message{NewMessage("ready", []byte("{}"))}),
		queue:    make(chan *Message, queueLength), view: v,
	}
	c.Changes = c.queue
	v.clients[c] = true
	return c
}

// read stores a new snapshot of the rows of the feed in the view.
func (v *view) read(f *Feed) {
	nodes, pods := &batch{event: "nodes"}, &batch{event: "pods"}
	hosts := map[string]int{}
	for _, p := range f.pods {
		if v.sees(p) {
			pods.add(p.appendJSON)
			hosts[p.Node]++
		}
	}
	switch {
	case v.Nodes:
		for _, n := range f.nodes {
			nodes.add(n.appendJSON)
		}
	default:
		v.hosts = hosts
		for name := range hosts {
			if name != "" {
				nodes.add(NodeRow{Name: name}.appendJSON)
			}
		}
	}
	v.snapshot, v.made, v.since = slices.Concat(nodes.end(), pods.end()), time.Now(), nil
}

// changes returns the messages about changes that the clients may see.
func (v *view) changes(nodes []change[NodeRow], pods []change[PodRow]) []*Message {
	n, p := &batch{event: "nodes"}, &batch{event: "pods"}
	if v.Nodes {
		for _, c := range nodes {
			if c.after.Name == "" {
				n.drop(c.before.Name)
			} else {
				n.add(c.after.appendJSON)
			}
		}
	}
	hosts := map[string]int{} // the number of visible pods that were added to a node
	for _, c := range pods {
		before, after := v.sees(c.before), v.sees(c.after)
		switch {
		case after:
			p.add(c.after.appendJSON)
		case before:
			p.drop(c.before.UID)
		}
		if before {
			hosts[c.before.Node]--
		}
		if after {
			hosts[c.after.Node]++
		}
	}
	if !v.Nodes {
		v.host(hosts, n)
	}
	return slices.Concat(n.end(), p.end())
}

// host counts pods that came to nodes, and adds the nodes that got their first pod or lost their last one to a message.
func (v *view) host(came map[string]int, to *batch) {
	for name, n := range came {
		before := v.hosts[name]
		if v.hosts[name] += n; v.hosts[name] <= 0 {
			delete(v.hosts, name)
		}
		switch {
		case name == "":
		case before == 0 && n > 0:
			to.add(NodeRow{Name: name}.appendJSON)
		case before > 0 && before+n <= 0:
			to.drop(name)
		}
	}
}

// send puts messages into the queues of the clients. A client with a full queue is removed, and joins again.
func (v *view) send(f *Feed, messages []*Message) {
	v.since = append(v.since, messages...)
	if len(v.since) > snapshotChanges { // the next client gets another snapshot
		v.snapshot, v.since = nil, nil
	}
	for c := range v.clients {
		for _, m := range messages {
			select {
			case c.queue <- m:
				continue
			default:
			}
			f.remove(c)
			break
		}
	}
}
