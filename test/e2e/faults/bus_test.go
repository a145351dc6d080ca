package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// servers is the number of servers of the bus. The server smallDisk has a disk of 128 MiB.
const servers, smallDisk = 3, 2

// catchUpLimit is the longest time until a server that was started has the messages of the others.
const catchUpLimit = 30 * time.Second

// server is one server of the bus, in its own process. The fields do not change.
type server struct {
	name    string // in run.running
	store   string // directory
	config  string // file
	address string
	monitor string // URL of the monitoring endpoints
}

const serverConfig = `server_name: %s
listen: "%s"
http: "%s"
jetstream: {store_dir: "%s", max_file_store: 64GB, max_memory_store: 256MB, sync_interval: always}
cluster: {name: rehome, listen: "%s", no_advertise: true, routes: [%s]}
`

// startServers starts the bus.
func (r *run) startServers() error {
	addresses, err := program.FreeAddresses(3 * servers)
	if err != nil {
		return err
	}
	listen, health, peers := addresses[:servers], addresses[servers:2*servers], addresses[2*servers:]
	dir := r.t.TempDir()
	for i := range servers {
		s := server{fmt.Sprint("bus-", i), filepath.Join(dir, fmt.Sprint(i)), filepath.Join(dir, fmt.Sprint(i, ".conf")), listen[i], "http://" + health[i]}
		text := fmt.Sprintf(serverConfig, s.name, s.address, health[i], s.store, peers[i], `"nats://`+strings.Join(peers, `", "nats://`)+`"`)
		if err := errors.Join(os.WriteFile(s.config, []byte(text), 0o600), os.MkdirAll(s.store, 0o700)); err != nil {
			return err
		}
		r.servers = append(r.servers, s)
	}
	r.backup = filepath.Join(dir, "backup")
	r.t.Cleanup(r.killAll)
	if !*onlyCore {
		r.mountDisk(r.servers[smallDisk].store)
	}
	return r.startBus()
}

// mountDisk gives a directory a disk of 128 MiB.
func (r *run) mountDisk(dir string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128m"); err != nil {
		r.must(fmt.Errorf("mount a small disk for the bus: %w", err))
	}
	r.t.Cleanup(func() {
		r.killAll()
		if err := syscall.Unmount(dir, 0); err != nil {
			r.fail("unmount %s: %v", dir, err)
		}
	})
}

func (r *run) serverAddresses() (list []string) {
	for _, s := range r.servers {
		list = append(list, s.address)
	}
	return list
}

// startBus starts the servers that do not run, and waits until they are one cluster. Sometimes a server does not catch up with the
// others after a kill. It is started again then.
func (r *run) startBus() error {
	for _, s := range r.servers {
		if p := r.process(s.name); p != nil && !hasEnded(p) {
			continue
		}
		if err := r.startServer(s); err != nil {
			return err
		}
	}
	began := time.Now()
	return r.await("the servers of the bus are one cluster", waitLimit, func(ctx context.Context) error {
		for _, s := range r.servers {
			err := get(ctx, s.monitor+"/healthz")
			if err == nil {
				continue
			}
			err = fmt.Errorf("%s: %w", s.name, err)
			if time.Since(began) > catchUpLimit {
				r.t.Logf("%s: start again: %v", time.Now().Format(clock), err)
				r.count("server of the bus started again")
				r.process(s.name).Kill()
				began = time.Now()
				return errors.Join(err, r.startServer(s))
			}
			return err
		}
		return nil
	})
}

func (r *run) startServer(s server) error {
	return r.startProcess(s.name, r.nats, []string{"-c", s.config}, "GOMEMLIMIT=512MiB")
}

// get returns an error unless the answer is 200 OK.
func get(ctx context.Context, url string) error {
	_, err := read(ctx, url, 1<<10)
	return err
}

// read returns at most that many bytes of a page. It fails unless the status is 200.
func read(ctx context.Context, url string, most int64) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.StatusCode, body)
	}
	return string(body), err
}

func (r *run) stopBus() {
	for _, s := range r.servers {
		r.process(s.name).Kill()
	}
}

// setWires sets the connections of all roles to the bus.
func (r *run) setWires(is state) {
	for _, w := range r.wires {
		w.set(is)
	}
}

func (r *run) restartBus(*rand.Rand) (end func() error, err error) {
	r.stopBus()
	return r.startBus, r.backUp()
}

func (r *run) restartServer(random *rand.Rand) (end func() error, err error) {
	r.process(r.servers[random.IntN(servers)].name).Kill()
	return r.startBus, nil
}

// backUp copies the stores of the stopped bus.
func (r *run) backUp() error {
	if err := os.RemoveAll(r.backup); err != nil {
		return err
	}
	r.backedUp = time.Now()
	for _, s := range r.servers {
		if err := os.CopyFS(filepath.Join(r.backup, s.name), os.DirFS(s.store)); err != nil {
			return err
		}
	}
	return nil
}

// restoreBus replaces the stores by their last copies. It first cuts all roles off and reads the history, which the judge needs.
func (r *run) restoreBus(*rand.Rand) (end func() error, err error) {
	if _, err := os.Stat(r.backup); err != nil {
		r.stopBus()
		if err := errors.Join(r.backUp(), r.startBus()); err != nil {
			return nil, err
		}
		time.Sleep(5 * time.Second)
	}
	r.setWires(down)
	end = func() error { r.setWires(open); return nil }
	time.Sleep(200 * time.Millisecond)
	var h *history
	err = r.await("the history of the bus can be read", waitLimit, func(ctx context.Context) error {
		if h, err = r.rememberedHistory(); err != nil {
			return err
		}
		return r.readBus(ctx, h)
	})
	if err != nil {
		return end, err
	}
	r.stopBus()
	for _, s := range r.servers {
		if err := replaceFiles(s.store, filepath.Join(r.backup, s.name)); err != nil {
			return end, err
		}
	}
	if err := r.startBus(); err != nil {
		return end, err
	}
	known := map[types.UID]bool{}
	err = r.await("the restored ledger can be read", waitLimit, func(ctx context.Context) error { return r.readLedger(ctx, known) })
	r.mu.Lock()
	r.lost, r.losses = h.events, append(r.losses, loss{interval{r.backedUp, time.Now()}, known})
	r.mu.Unlock()
	return end, err
}

// readLedger adds the pods of all moves in the ledger to known.
func (r *run) readLedger(ctx context.Context, known map[types.UID]bool) error {
	b, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	entries, err := b.Ledger().Entries(ctx)
	if err != nil {
		return err
	}
	ledger, _ := actuator.ReadLedger(entries)
	for _, m := range ledger.Moves {
		known[m.Pod.UID] = m.Moved.IsZero()
	}
	return nil
}

// replaceFiles copies the files of a directory into another one and removes what was there. It keeps the directory, which can be
// a mount point.
func replaceFiles(to, from string) error {
	entries, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return os.CopyFS(to, os.DirFS(from))
}

// fillDisk fills the disk of one server. JetStream stops there. The server is restarted when there is space again, as by its
// liveness probe.
func (r *run) fillDisk(*rand.Rand) (end func() error, err error) {
	s := r.servers[smallDisk]
	full := filepath.Join(s.store, "full")
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
		r.process(s.name).Kill()
		return errors.Join(os.Remove(full), r.startBus())
	}, nil
}

// raw connects a client without Rehome's rules.
func (r *run) raw() (jetstream.JetStream, func(), error) {
	nc, err := nats.Connect(natsURL(r.serverAddresses()))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	return js, nc.Close, err
}

// badRecord stores an unreadable record in the ledger, and restarts the actuators, which read it.
func (r *run) badRecord(random *rand.Rand) (end func() error, err error) {
	store := func(text string, header nats.Header) error {
		return r.await("a record is stored in the ledger", waitLimit, func(ctx context.Context) error {
			js, disconnect, err := r.raw()
			if err != nil {
				return err
			}
			defer disconnect()
			subject := "$KV." + strings.TrimPrefix(bus.StreamLedger, "KV_") + ".move.bad"
			_, err = js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(text), Header: header})
			return err
		})
	}
	again := func() error { return errors.Join(r.restart("actuator-0"), r.restart("actuator-1")) }
	end = func() error {
		return errors.Join(store("", nats.Header{"KV-Operation": {"DEL"}}), again())
	}
	return end, errors.Join(store([]string{"{}", "\x00", `{"pod":7}`}[random.IntN(3)], nil), again())
}

// describeBus returns whether a client of each server gets an answer about the history, and what each server reports: its streams
// with their replicas, its routes, and the goroutines that answer requests. It helps to find out why a server does not answer.
func (r *run) describeBus() string {
	var b strings.Builder
	for _, s := range r.servers {
		look := func(page string) string {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			text, err := read(ctx, s.monitor+page, 1<<20)
			if err != nil {
				return err.Error()
			}
			return text
		}
		fmt.Fprintf(&b, "%s, request for %s: %s\n", s.name, bus.StreamEvents, askDirectly(s.address))
		fmt.Fprintf(&b, "%s, streams:\n%s\n%s, routes:\n%s\n%s, goroutines:\n",
			s.name, look("/jsz?streams=true"), s.name, look("/routez"), s.name)
		for stack := range strings.SplitSeq(look("/stacksz"), "\n\n") {
			if strings.Contains(stack, "jsMsgGet") || strings.Contains(stack, "apiDispatch") || strings.Contains(stack, "Mutex") {
				fmt.Fprintf(&b, "%s\n\n", stack)
			}
		}
	}
	return b.String()
}

// askDirectly asks for the state of the history, through one server.
func askDirectly(address string) string {
	nc, err := nats.Connect(natsURL([]string{address}), nats.Timeout(2*time.Second))
	if err != nil {
		return err.Error()
	}
	defer nc.Close()
	start := time.Now()
	m, err := nc.Request("$JS.API.STREAM.INFO."+bus.StreamEvents, nil, 10*time.Second)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("after %v: %.300s", time.Since(start), m.Data)
}
