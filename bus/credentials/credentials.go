// Package credentials writes the files by which NATS servers know who takes part on the bus, and let everybody do what
// [bus.RightsOf] says and nothing else.
//
// [Write] can be called again on the same directory, with other participants too: a secret that is there is kept and never
// changed; everything else is written anew. It makes no connection. It must not be called twice at once on one directory.
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

// The files that everybody may read. Seeds are in files that end in [SeedSuffix], one for each participant.
const (
	ServerConfig = "rehome.conf" // included into the configuration of each server
	Readme       = "README.md"
	SeedSuffix   = ".nk"
)

// Config says for whom to write files.
type Config struct {
	// Functions are the functions outside of Rehome, Senders those that may ask for something.
	Functions, Senders []bus.Participant
	// BuiltIn are the strategies that `rehome functions` hosts, HTTPFunctions those that the dispatcher asks over HTTP.
	BuiltIn, HTTPFunctions []string
	// Hosts are the names and addresses of the servers, for a certificate. None: no certificates are made.
	Hosts []string
}

// Report is what [Write] did.
type Report struct {
	// Made and Kept are the names of the files that are made once, keys and the certificate of the authority, sorted.
	Made, Kept []string
	// Unused are the files with seeds of participants who are not in [ServerConfig] any more, sorted.
	Unused []string
}

// Participants are all who take part: the roles, then functions, then senders.
func (c Config) Participants() []bus.Participant {
	var all []bus.Participant
	for _, role := range []bus.Role{
		bus.RoleSetup, bus.RoleWatcher, bus.RoleFunctions, bus.RoleDispatcher, bus.RoleActuator, bus.RoleMaintenance, bus.RoleAll,
		bus.RoleReader, bus.RoleListener, bus.RoleForwarder, bus.RoleOperator,
	} {
		all = append(all, bus.Participant{Role: role})
	}
	return slices.Concat(all, c.Functions, c.Senders)
}

// hosting is which strategies have functions, and where.
func (c Config) hosting() bus.Hosting {
	h := bus.Hosting{BuiltIn: c.BuiltIn, Outside: slices.Clone(c.HTTPFunctions)}
	for _, f := range c.Functions {
		h.Outside, h.Subjects = append(h.Outside, f.Name), append(h.Subjects, f.Subject)
	}
	return h
}

// user is a participant with the public half of its key.
type user struct {
	bus.Participant
	public string
	rights bus.Rights
}

// Write writes the files into dir, which is made when it is not there. Files with secrets have the mode 0600, all others
// 0644. It fails when two participants have one name, when a function has no subject, and when a secret that is there
// cannot be used; then nothing of the rest is written.
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

// check says what is wrong with the participants.
func (c Config) check() error {
	var problems []error
	seen := map[string]bool{}
	for _, p := range slices.Concat(c.Functions, c.Senders) {
		switch {
		case p.Name == "":
			problems = append(problems, fmt.Errorf("%s: want a name, got none", p.Role))
		case seen[p.String()]:
			problems = append(problems, fmt.Errorf("%s %s: want it once, got it twice", p.Role, p.Name))
		case p.Role == bus.RoleFunction:
			if err := checkSubject(p.Subject); err != nil {
				problems = append(problems, fmt.Errorf("function %s: %w", p.Name, err))
			}
		}
		seen[p.String()] = true
	}
	return errors.Join(problems...)
}

// checkSubject refuses what is no single subject, and what belongs to Rehome or to the server itself: who may listen there
// would learn more than it is asked.
func checkSubject(subject string) error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("*>\"'\\`|", r) }
	bad := strings.ContainsFunc(subject, strange) || slices.Contains(strings.Split(subject, "."), "")
	if bad || strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_") || strings.HasPrefix(subject, "rehome.") {
		return fmt.Errorf("want a subject such as functions.keep-off-spot, not of rehome, without wildcards, got %q", subject)
	}
	return nil
}

// writer writes into one directory.
type writer struct {
	dir    string
	report Report
}

// users reads or makes the seed of each participant.
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

// seed returns the public key of the seed in a file, which is made when it is not there.
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

// keep reads a file, or makes it.
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

// public writes a file that everybody may read.
func (w *writer) public(name string, text []byte) error { return w.replace(name, text, 0o644) }

// replace writes a file as a whole: who reads it meanwhile, or after a crash, has the old one or the new one.
func (w *writer) replace(name string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(w.dir, "."+name+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it has its name by then, or the error that counts is another
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(w.dir, name), err)
	}
	return os.Rename(f.Name(), filepath.Join(w.dir, name))
}

// findUnused finds the seeds that nobody uses.
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
