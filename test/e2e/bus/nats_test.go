package bus

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// deleteStore deletes the store of a stopped server.
func deleteStore(s *scene.NATSServers, i int) {
	s.T.Helper()
	expect.Must(s.T, os.RemoveAll(s.Settings[i].Store))
}

// streams returns the servers' information about the streams of Rehome, or nil.
func streams(s *scene.NATSServers) (list []*jetstream.StreamInfo, problem string) {
	nc, err := nats.Connect(s.URL())
	if err != nil {
		return nil, err.Error()
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err.Error()
	}
	ctx, cancel := context.WithTimeout(s.T.Context(), time.Second)
	defer cancel()
	for _, name := range []string{bus.StreamScopes, bus.StreamIntents, bus.StreamEvents, bus.StreamDead, bus.StreamLedger} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return nil, name + ": " + err.Error()
		}
		list = append(list, stream.CachedInfo())
	}
	return list, ""
}

// leader returns the number of the server that leads a stream.
func leader(s *scene.NATSServers, stream string) int {
	s.T.Helper()
	leader := -1
	expect.EventuallyWithState(s.T, stream+" has a leader", func() (bool, string) {
		list, problem := streams(s)
		for _, info := range list {
			if info.Config.Name == stream && info.Cluster != nil {
				leader = slices.IndexFunc(s.Settings, func(n scene.NATSSettings) bool { return n.Name == info.Cluster.Leader })
			}
		}
		return leader >= 0, problem
	})
	return leader
}

// waitCurrent waits until every stream has n copies, all current.
func waitCurrent(s *scene.NATSServers, n int) {
	s.T.Helper()
	expect.EventuallyWithState(s.T, fmt.Sprintf("every stream has %d current copies", n), func() (bool, string) {
		list, problem := streams(s)
		if problem != "" {
			return false, problem
		}
		for _, info := range list {
			current := 0
			if info.Cluster != nil && info.Cluster.Leader != "" {
				current = 1
				for _, replica := range info.Cluster.Replicas {
					if replica.Current && !replica.Offline {
						current++
					}
				}
			}
			if current != n {
				return false, fmt.Sprintf("%s has %d: %+v", info.Config.Name, current, info.Cluster)
			}
		}
		return true, ""
	})
}
