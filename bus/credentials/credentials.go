// Package credentials writes the files that identify the participants of the bus to NATS servers, with the rights of
// [bus.RightsOf].
//
//	credentials.go  Write: a seed for each participant
//	config.go       the configuration of the servers, and the README
//	tls.go          certificates
//	bundle.go       Bundles: the files of each participant
//
// [Write] keeps the secrets in a directory and writes all other files again, even for other participants. It opens no connection.
// Two calls on one directory must not run at the same time.
package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/rehome-dev/rehome/bus"
)

// The public files. Each participant has a file with its seed, which ends in [SeedSuffix].
const (
	ServerConfig = "rehome.conf" // the configuration of each server includes it
	Readme       = "README.md"
	SeedSuffix   = ".nk"
)

// Config lists the participants and the servers.
type Config struct {
	// Functions are external functions, Senders the programs that make requests, Forwarders the programs that read the
	// history under a name.
	Functions, Senders, Forwarders []bus.Participant
	// BuiltIn are the strategies that `rehome functions` hosts, HTTPFunctions the ones with an HTTP function.
	BuiltIn, HTTPFunctions []string
	// Hosts are the names and addresses of the servers, for certificates. Empty means no certificates.
	Hosts []string
	// Prefix is the prefix of streams and subjects, see [bus.Options].
	Prefix bus.Prefix
}

// Report lists the files with secrets, sorted.
type Report struct {
	// Made and Kept are keys and the certificate of the authority.
	Made, Kept []string
	// Unused are the seeds of participants that [ServerConfig] no longer lists.
	Unused []string
}

// Participants returns the roles, then functions, senders, and forwarders.
func (c Config) Participants() []bus.Participant {
	var all []bus.Participant
	for _, r := range roles() {
		all = append(all, bus.Participant{Role: r.role})
	}
	return slices.Concat(all, c.Functions, c.Senders, c.Forwarders)
}

// hosting returns the strategies that have functions, and where they run.
func (c Config) hosting() bus.Hosting {
	h := bus.Hosting{BuiltIn: c.BuiltIn, Outside: slices.Clone(c.HTTPFunctions), Prefix: c.Prefix}
	for _, f := range c.Functions {
		h.Outside, h.Subjects = append(h.Outside, f.Name), append(h.Subjects, f.Subject)
	}
	return h
}

// user is a participant with the public half of its key.
type user struct {
	bus.Participant
	Public string
	Rights bus.Rights
}

// Write writes the files into dir, which it creates. Files with secrets have the mode 0600, all others 0644. It fails before it
// writes other files if two participants have the same name, if a function has no subject, or if a secret in the directory is
// invalid.
func Write(dir string, c Config) (Report, error) {
	if err := c.check(); err != nil {
		return Report{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Report{}, err
	}
	w := &writer{dir: dir}
	users, err := w.users(c)
	if err != nil {
		return Report{}, err
	}
	certified, err := w.certify(c.Hosts)
	if err != nil {
		return Report{}, err
	}
	err = errors.Join(
		w.public(ServerConfig, serverConfig(users)), w.public(Readme, readme(users, certified)), w.findUnused(users))
	slices.Sort(w.report.Made)
	slices.Sort(w.report.Kept)
	return w.report, err
}

// check returns an error for each wrong participant.
func (c Config) check() error {
	var problems []error
	seen := map[string]bool{}
	for _, p := range slices.Concat(c.Functions, c.Senders, c.Forwarders) {
		switch {
		case p.Name == "":
			problems = append(problems, fmt.Errorf("%s: want a name, got none", p.Role))
		case seen[p.String()]:
			problems = append(problems, fmt.Errorf("%s %s: want it once, got it twice", p.Role, p.Name))
		case p.Role == bus.RoleFunction:
			if err := checkSubject(p.Subject, c.Prefix); err != nil {
				problems = append(problems, fmt.Errorf("function %s: %w", p.Name, err))
			}
		}
		seen[p.String()] = true
	}
	return errors.Join(problems...)
}

// checkSubject refuses wildcards and the subjects of Rehome, with and without the prefix, and of the server: a function that
// listens there would receive messages of others.
func checkSubject(subject string, prefix bus.Prefix) error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("*>\"'\\`|", r) }
	bad := strings.ContainsFunc(subject, strange) || slices.Contains(strings.Split(subject, "."), "")
	if bad || strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_") || strings.HasPrefix(subject, "rehome.") ||
		strings.HasPrefix(subject, string(prefix)+".rehome.") {
		return fmt.Errorf("want a subject such as functions.keep-off-spot, not of rehome, without wildcards, got %q", subject)
	}
	return nil
}

// writer writes into one directory.
type writer struct {
	dir    string
	report Report
}

// users reads or creates the seeds of the participants.
func (w *writer) users(c Config) ([]user, error) {
	var users []user
	for _, p := range c.Participants() {
		public, err := w.seed(p.String() + SeedSuffix)
		if err != nil {
			return nil, err
		}
		users = append(users, user{p, public, bus.RightsOf(p, c.hosting())})
	}
	return users, nil
}

// seed returns the public key of the seed in a file. It creates the file if it is missing.
func (w *writer) seed(name string) (public string, err error) {
	text, err := w.keep(name, 0o600, func() ([]byte, error) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, err
		}
		seed, err := pair.Seed()
		return append(seed, '\n'), err
	})
	if err != nil {
		return "", err
	}
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(text))))
	if err != nil {
		return "", fmt.Errorf("%s: want the seed of a user's nkey: %w", filepath.Join(w.dir, name), err)
	}
	defer pair.Wipe()
	if public, err = pair.PublicKey(); err == nil && !nkeys.IsValidPublicUserKey(public) {
		err = fmt.Errorf("%s: want the seed of a user's nkey, got another kind", filepath.Join(w.dir, name))
	}
	return public, err
}

// keep reads a file, or creates it.
func (w *writer) keep(name string, mode fs.FileMode, make func() ([]byte, error)) ([]byte, error) {
	path := filepath.Join(w.dir, name)
	text, err := os.ReadFile(path)
	if err == nil {
		w.report.Kept = append(w.report.Kept, name)
		return text, os.Chmod(path, mode)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if text, err = make(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w.report.Made = append(w.report.Made, name)
	return text, w.replace(name, text, mode)
}

// public writes a file without secrets.
func (w *writer) public(name string, text []byte) error { return w.replace(name, text, 0o644) }

// replace writes a file atomically.
func (w *writer) replace(name string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(w.dir, "."+name+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails after the rename
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(w.dir, name), err)
	}
	return os.Rename(f.Name(), filepath.Join(w.dir, name))
}

// findUnused reports the seeds that no participant uses.
func (w *writer) findUnused(users []user) error {
	files, err := filepath.Glob(filepath.Join(w.dir, "*"+SeedSuffix))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !slices.ContainsFunc(users, func(u user) bool { return u.String()+SeedSuffix == name }) {
			w.report.Unused = append(w.report.Unused, name)
		}
	}
	return nil
}
