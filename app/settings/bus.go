package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// BusOptions returns the location of the bus: the URL, or the socket of a rehome that runs on this machine as this
// user.
func BusOptions(s Settings, name string) (bus.Options, error) {
	o := bus.Options{
		Name: name, URL: s.NATSURL, CAFile: s.NATSCA, CertFile: s.NATSCert, KeyFile: s.NATSKey, NKeyFile: s.NATSNKey,
		CredsFile: s.NATSCreds, Prefix: bus.Prefix(s.BusPrefix),
	}
	if s.NATSURL != "" {
		return o, nil
	}
	var err error
	o.Socket, err = s.socket()
	return o, err
}

// StartServer starts the embedded server, which is reachable at the socket.
func StartServer(s Settings, log *slog.Logger) (*embed.Server, error) {
	dir, err := s.storeDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("REHOME_STORE_DIR: %w", err)
	}
	socket, err := s.socket()
	if err != nil {
		return nil, err
	}
	server, err := embed.Start(embed.Options{
		StoreDir: dir, Socket: socket, MaxMemory: bus.ScopesMaxMemory, Reserve: s.StoreReserve, Log: log,
		Listen: embed.Listen{
			Address: s.Listen, CertFile: s.ListenCert, KeyFile: s.ListenKey, Participants: s.ListenAuth, Account: bus.Account,
		},
	})
	if errors.Is(err, embed.ErrListen) {
		return nil, fmt.Errorf("REHOME_LISTEN: %w", err)
	}
	if err != nil { // it is in use, or not writable
		return nil, fmt.Errorf("REHOME_STORE_DIR: %w", err)
	}
	return server, nil
}

// SetupOf returns the layout of the bus for the strategies of this binary, and for the declared and external ones of
// the policy.
func SetupOf(s Settings, p policy.Policy) bus.Setup {
	setup := bus.Setup{
		Strategies: functions.Names(functions.Hosted()), Replicas: s.NATSReplicas, History: s.History, Resync: s.Resync,
		ScopesInMemory: s.NATSURL == "", Parallel: make(map[string]int),
	}
	for _, o := range p.Outside {
		if o.Declared() {
			setup.Strategies = append(setup.Strategies, o.Strategy.Name)
		}
		setup.Parallel[o.Strategy.Name] = o.Parallel
	}
	return setup
}
