package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
)

// servers is how many the bus has, and smallDisk the one whose disk fills up.
const servers, smallDisk = 3, 2

func busSituations() []situation {
	wires := func(name string, is state) situation {
		return situation{name, 8 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
			w := r.wires[roles[random.IntN(len(roles))]]
			w.set(is)
			return func() error { w.set(open); return nil }, nil
		}}
	}
	return []situation{
		wires("partition with cut connections", down), wires("partition with silent connections", silent),
		{"slow bus", 8 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			r.setWires(slow)
			return func() error { r.setWires(open); return nil }, nil
		}},
		{"restart of one server of the bus", 4 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
			i := random.IntN(servers)
			r.servers.Stop(i)
			return func() error {
				r.servers.Start(r.t, i)
				return r.whole()
			}, nil
		}},
		{"restart of the bus", 4 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			r.stopBus()
			return r.startBus, r.backUp()
		}},
		{"bus restored to an older state", 2 * time.Second, (*run).restoreBus},
		{"full disk of a server of the bus", 6 * time.Second, (*run).fillDisk},
		{"bad record in the ledger", 10 * time.Second, (*run).badRecord},
	}
}

func (r *run) setWires(is state) {
	for _, w := range r.wires {
		w.set(is)
	}
}

func (r *run) stopBus() {
	for i := range servers {
		r.servers.Stop(i)
	}
}

func (r *run) startBus() error {
	for i := range servers {
		r.servers.Start(r.t, i)
	}
	return r.whole()
}

// whole waits until the servers are one cluster again, so that no two of them are away at once by accident.
func (r *run) whole() error {
	return insist(func() error {
		if !r.servers.Whole() {
			return errors.New("the servers of the bus are no cluster")
		}
		return nil
	})
}

// backUp copies the stores of the bus, which is stopped.
func (r *run) backUp() error {
	if err := os.RemoveAll(r.backup); err != nil {
		return err
	}
	r.backedUp = time.Now()
	for i := range servers {
		if err := os.CopyFS(filepath.Join(r.backup, fmt.Sprint(i)), os.DirFS(r.servers.Dir(i))); err != nil {
			return err
		}
	}
	return nil
}

// restoreBus puts the last copies of the stores back. It keeps the newer part of the history for the judge. The roles are cut off
// first, so that nothing is stored after that.
func (r *run) restoreBus(*rand.Rand) (end func() error, err error) {
	if _, err := os.Stat(r.backup); err != nil { // there is none yet
		r.stopBus()
		if err := errors.Join(r.backUp(), r.startBus()); err != nil {
			return nil, err
		}
		time.Sleep(5 * time.Second)
	}
	r.setWires(down)
	time.Sleep(200 * time.Millisecond)
	var s story
	err = insist(func() error {
		if s, err = r.remembered(); err != nil {
			return err
		}
		return r.readBus(context.Background(), &s)
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.lost, r.losses = s.history, append(r.losses, interval{r.backedUp, time.Now()})
	r.mu.Unlock()
	r.stopBus()
	for i := range servers {
		dir := r.servers.Dir(i)
		entries, err := os.ReadDir(dir) // the directory can be the place of a mount
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(r.backup, fmt.Sprint(i)))); err != nil {
			return nil, err
		}
	}
	if err := r.startBus(); err != nil {
		return nil, err
	}
	return func() error { r.setWires(open); return nil }, nil
}

// mountDisk gives a server of the bus a small disk of its own.
func (r *run) mountDisk() {
	dir := r.servers.Dir(smallDisk)
	r.servers.Stop(smallDisk)
	r.must(os.RemoveAll(dir))
	r.must(os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128m"); err != nil {
		r.must(fmt.Errorf("a small disk for the bus needs the right to mount: %w", err))
	}
	r.t.Cleanup(func() {
		r.servers.Stop(smallDisk)
		r.must(syscall.Unmount(dir, 0))
	})
	r.servers.Start(r.t, smallDisk)
}

// fillDisk fills the disk of one server up. JetStream stops there, and the server is restarted when there is space again, as by
// its liveness probe.
func (r *run) fillDisk(*rand.Rand) (end func() error, err error) {
	full := filepath.Join(r.servers.Dir(smallDisk), "full")
	f, err := os.Create(full)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	chunk := make([]byte, 1<<16)
	for err == nil {
		_, err = f.Write(chunk)
	}
	return func() error {
		r.servers.Stop(smallDisk)
		err := os.Remove(full)
		r.servers.Start(r.t, smallDisk)
		return errors.Join(err, r.whole())
	}, nil
}

// raw is a client with all rights.
func (r *run) raw() (jetstream.JetStream, func(), error) {
	nc, err := nats.Connect(r.servers.URL())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	return js, nc.Close, err
}

// badRecord puts a record into the ledger that nothing can read, and has another actuator lead, which reads it.
func (r *run) badRecord(random *rand.Rand) (end func() error, err error) {
	js, closeIt, err := r.raw()
	if err != nil {
		return nil, err
	}
	subject := "$KV." + bus.StreamLedger[len("KV_"):] + ".move.bad"
	store := func(text string, header nats.Header) error {
		return insist(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(text), Header: header})
			return err
		})
	}
	if err := store([]string{"{}", "\x00", `{"pod":7}`}[random.IntN(3)], nil); err != nil {
		return nil, err
	}
	again := func() error { return errors.Join(r.restart("actuator-0"), r.restart("actuator-1")) }
	return func() error {
		defer closeIt()
		return errors.Join(store("", nats.Header{"KV-Operation": {"PURGE"}, "Nats-Rollup": {"sub"}}), again())
	}, again()
}
