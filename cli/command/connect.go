package command

import (
	"errors"
	"log/slog"
	"os"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/bus"
)

// clientRole is as whom a command takes part on the bus: most only read.
func clientRole(command string) bus.Role {
	switch command {
	case "rehome-setup":
		return bus.RoleSetup
	case "rehome-dead", "rehome-loops-clear", "rehome-forward-remove":
		return bus.RoleOperator
	}
	return bus.RoleReader
}

// Connect connects to the bus for a command that is not a role.
func Connect(s settings.Settings, name string) (*bus.Bus, error) {
	return ConnectAs(s, string(clientRole(name)))
}

// ConnectAs connects as a participant.
func ConnectAs(s settings.Settings, who string) (*bus.Bus, error) {
	o, err := settings.BusOptions(s, who)
	if err != nil {
		return nil, err
	}
	s.LogLevel = max(s.LogLevel, slog.LevelWarn) // a person wants the answer, and what keeps it away
	o.Log = s.Logger(os.Stderr)
	b, err := bus.Connect(o)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	return b, nil
}

// NoBus makes an error of who asks of one that says that there is no bus.
func NoBus(err error) error {
	if errors.Is(err, bus.ErrNotConnected) {
		return usage.Wrap(err)
	}
	return err
}
