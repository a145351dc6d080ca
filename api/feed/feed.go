package feed

import (
	"context"
	"errors"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
)

const (
	// coalesce is the time between two messages about the same kind of object.
	coalesce = 100 * time.Millisecond
	// idle is how long the rows are kept without clients.
	idle = 30 * time.Second
	// queueLength is the number of messages that a client may be behind: half a minute of constant changes.
	queueLength = 300
	// mostRows limits the rows of a message, and so the garbage that a browser makes of it.
	mostRows = 500
)

// ErrEnded is the error of [Feed.Join] after the end of [Feed.Run].
var ErrEnded = errors.New("the feed has ended")

// Feed turns changes into messages. Use [New] to make one.
type Feed struct {
	cluster *cluster.Cache
	changed changed
	joins   chan join
	leaves  chan *Client
	ended   chan struct{}

	// The goroutine of Run owns the fields below.
	nodes map[string]NodeRow
	pods  map[types.UID]PodRow
	views map[string]*view
}

// New returns a feed for a cache that does not run yet and has the kinds of [cluster.WorkloadKinds].
func New(c *cluster.Cache) *Feed {
	f := &Feed{
		cluster: c, changed: changed{wake: make(chan struct{}, 1), keys: newKeys()}, joins: make(chan join),
		leaves: make(chan *Client), ended: make(chan struct{}), views: map[string]*view{},
	}
	f.changed.watch(c)
	return f
}

// Client has the messages for one client.
type Client struct {
	// Snapshot are the first messages: nodes, pods, and the end of them.
	Snapshot []*Message
	// Changes are the messages after the snapshot. The channel is closed when the client is too slow, and at the end of the feed.
	Changes <-chan *Message

	queue chan *Message
	view  *view
}

type join struct {
	rights Rights
	client chan *Client
}

// Join adds a client with these rights. Call [Feed.Leave] when it is gone.
func (f *Feed) Join(ctx context.Context, r Rights) (*Client, error) {
	j := join{r, make(chan *Client, 1)}
	select {
	case f.joins <- j:
		return <-j.client, nil
	case <-f.ended:
		return nil, ErrEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Leave removes a client. Its channel may be closed already.
func (f *Feed) Leave(c *Client) {
	select {
	case f.leaves <- c:
	case <-f.ended:
	}
}

// Run works until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	defer f.end()
	if !f.cluster.WaitForSync(ctx) {
		return nil
	}
	due := time.NewTimer(0) // for the next messages, and without clients for the end of the rows
	due.Stop()
	for waiting := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case j := <-f.joins:
			if f.pods == nil {
				f.begin()
			} else {
				f.update()
			}
			j.client <- f.viewOf(j.rights).join(f)
		case c := <-f.leaves:
			f.remove(c)
			if len(f.views) == 0 {
				waiting = false
				due.Reset(idle)
			}
		case <-f.changed.wake:
			if !waiting && len(f.views) > 0 {
				waiting = true
				due.Reset(coalesce)
			}
		case <-due.C:
			switch waiting = false; {
			case len(f.views) > 0:
				f.update()
			default:
				f.forget()
			}
		}
	}
}

func (f *Feed) end() {
	close(f.ended)
	for _, v := range f.views {
		for c := range v.clients {
			close(c.queue)
		}
	}
}

// begin reads all rows.
func (f *Feed) begin() {
	f.changed.take()
	f.changed.active.Store(true)
	f.nodes, f.pods = map[string]NodeRow{}, map[types.UID]PodRow{}
	for _, n := range f.cluster.AllNodes(labels.Everything()) {
		f.nodes[n.Name] = nodeRow(n, f.cluster.PodsOnNode(n.Name))
	}
	for _, p := range f.cluster.AllPods() {
		f.pods[p.UID] = f.row(p)
	}
}

func (f *Feed) row(p *corev1.Pod) PodRow {
	w, _ := f.cluster.Workloads().Pod(p.UID)
	return podRow(p, w)
}

// forget drops all rows.
func (f *Feed) forget() {
	f.changed.active.Store(false)
	f.changed.take()
	f.nodes, f.pods = nil, nil
}

// change is a row before and after. The zero value means that there is no row.
type change[R any] struct{ before, after R }

// update compares the rows of changed objects, and sends the differences to all clients.
func (f *Feed) update() {
	k := f.changed.take()
	for uid := range k.workloads {
		for _, p := range f.cluster.Workloads().Pods(uid) {
			k.pods[p.Ref.UID] = true
		}
	}
	var pods []change[PodRow]
	for uid := range k.pods {
		before, after := f.pods[uid], PodRow{}
		if p := f.cluster.PodByUID(uid); p != nil {
			after = f.row(p)
		}
		if before == after {
			continue
		}
		pods = append(pods, change[PodRow]{before, after})
		if after.UID == "" {
			delete(f.pods, uid)
		} else {
			f.pods[uid] = after
		}
		for _, node := range []string{before.Node, after.Node} {
			if node != "" {
				k.nodes[node] = true
			}
		}
	}
	var nodes []change[NodeRow]
	for name := range k.nodes {
		before, after := f.nodes[name], NodeRow{}
		if n := f.cluster.Node(name); n != nil {
			after = nodeRow(n, f.cluster.PodsOnNode(name))
		}
		if reflect.DeepEqual(before, after) {
			continue
		}
		nodes = append(nodes, change[NodeRow]{before, after})
		if after.Name == "" {
			delete(f.nodes, name)
		} else {
			f.nodes[name] = after
		}
	}
	for _, v := range f.views {
		v.send(f, v.changes(nodes, pods))
	}
}

// viewOf returns the view of clients with these rights.
func (f *Feed) viewOf(r Rights) *view {
	key := r.key()
	if f.views[key] == nil {
		f.views[key] = newView(r, key)
	}
	return f.views[key]
}

func (f *Feed) remove(c *Client) {
	if v := c.view; v.clients[c] {
		delete(v.clients, c)
		close(c.queue)
		if len(v.clients) == 0 {
			delete(f.views, v.key)
		}
	}
}
