package credentials

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rehome-dev/rehome/bus"
)

// replyWithin is how long a function may take to answer: longer than the dispatcher waits.
const replyWithin = "10m"

// serverConfig returns the part of the configuration of a server with the accounts and rights of all users.
func serverConfig(users []user) []byte {
	var names []string
	members := map[string][]user{}
	services, streams := map[string][]string{}, map[string][]string{} // the accounts that import a subject
	for _, u := range users {
		name := u.Account()
		if members[name] == nil {
			names = append(names, name)
		}
		members[name] = append(members[name], u)
		if name == bus.Account {
			continue
		}
		asks, hears := u.rights.Imports()
		for _, s := range asks {
			services[s] = append(services[s], name)
		}
		for _, s := range hears {
			streams[s] = append(streams[s], name)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by rehome auth init, which writes it anew. It holds no secrets.\n"+
		"# Every server has it in its configuration, with the line: include %q\naccounts {\n", ServerConfig)
	for _, name := range names {
		fmt.Fprintf(&b, "  %q {\n", name)
		if name == bus.Account {
			b.WriteString("    jetstream: enabled\n    exports: [\n")
			writeExports(&b, "service", services)
			writeExports(&b, "stream", streams)
		} else {
			b.WriteString("    imports: [\n")
			asks, hears := members[name][0].rights.Imports()
			writeImports(&b, "service", asks)
			writeImports(&b, "stream", hears)
		}
		b.WriteString("    ]\n    users: [\n")
		for _, u := range members[name] {
			writeUser(&b, u)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// writeExports writes the subjects that accounts of others import, each for those accounts alone.
func writeExports(b *bytes.Buffer, kind string, importers map[string][]string) {
	for _, subject := range slices.Sorted(maps.Keys(importers)) {
		answers := ""
		if kind == "service" && bus.AnswersOften(subject) {
			answers = ", response_type: stream"
		}
		fmt.Fprintf(b, "      { %s: %q%s, accounts: [ %s ] }\n", kind, subject, answers, quoted(importers[subject]))
	}
}

func writeImports(b *bytes.Buffer, kind string, subjects []string) {
	for _, subject := range subjects {
		fmt.Fprintf(b, "      { %s: { account: %q, subject: %q } }\n", kind, bus.Account, subject)
	}
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = strconv.Quote(name)
	}
	return strings.Join(all, ", ")
}

// writeUser writes the key of a user and its rights.
func writeUser(b *bytes.Buffer, u user) {
	fmt.Fprintf(b, "      { # %s\n        nkey: %s\n        permissions {\n", u, u.public)
	writeAllowed(b, "publish", u.rights.Publish)
	writeAllowed(b, "subscribe", u.rights.Subscribe)
	if u.rights.Reply {
		fmt.Fprintf(b, "          allow_responses { max: 1, expires: %q }\n", replyWithin)
	}
	b.WriteString("        }\n      }\n")
}

// writeAllowed writes the allowed subjects. Without a list the server allows everything, so no subject needs a deny.
func writeAllowed(b *bytes.Buffer, verb string, subjects []string) {
	if len(subjects) == 0 {
		fmt.Fprintf(b, "          %s { deny: [\">\"] }\n", verb)
		return
	}
	fmt.Fprintf(b, "          %s { allow: [\n", verb)
	for _, s := range subjects {
		fmt.Fprintf(b, "            %q\n", s)
	}
	b.WriteString("          ] }\n")
}

// seedOf is a role and the programs that use its seed.
type seedOf struct {
	role bus.Role
	use  string
}

// roles returns the roles in the order of the files.
func roles() []seedOf {
	return []seedOf{
		{bus.RoleSetup, "`rehome setup`, once"},
		{bus.RoleWatcher, "`rehome watcher`"},
		{bus.RoleFunctions, "`rehome functions`"},
		{bus.RoleDispatcher, "`rehome dispatcher`"},
		{bus.RoleActuator, "`rehome actuator`"},
		{bus.RoleMaintenance, "`rehome maintenance`"},
		{bus.RoleAll, "`rehome run` with these servers"},
		{bus.RoleReader, "`rehome events`, `rehome status`, `rehome get breakers`, and programs that read the past"},
		{bus.RoleListener, "programs that listen to what happens from now on"},
		{bus.RoleOperator, "people: `rehome get deadletters`, `rehome breakers clear`, `rehome forward --add` and `--remove`"},
	}
}

// use returns the programs that use the seed of a participant.
func use(p bus.Participant) string {
	switch p.Role {
	case bus.RoleFunction:
		return "the function " + p.Name + ", which is asked on `" + p.Subject + "`"
	case bus.RoleForwarder:
		return "`rehome forward --name " + p.Name + "`"
	case bus.RoleSender:
		return "the program that asks as " + p.Name + ", such as `rehome move --sender " + p.Name + "`"
	}
	for _, r := range roles() {
		if r.role == p.Role {
			return r.use
		}
	}
	return ""
}

// readme returns the text of [Readme].
func readme(users []user, certified bool) []byte {
	var b strings.Builder
	b.WriteString("# Participants of the bus\n\n" +
		"`rehome auth init` wrote these files. To add a participant, run it again and name all participants that remain. It keeps\n" +
		"existing seeds. Files that end in `.nk` or `.key` are secrets.\n\n" +
		"1. Each NATS server reads `" + ServerConfig + "`, by the line `include \"" + ServerConfig + "\"` in its configuration.\n" +
		"   `nats-server --signal reload` makes it read changes. Reload twice, some seconds apart, when you add a participant with\n" +
		"   an account of its own.\n" +
		"2. Each participant gets its own seed only. Programs of Rehome find it by `REHOME_NATS_NKEY_FILE`, and receive answers\n" +
		"   below `_INBOX_` and the name of the file.\n\n" +
		"| seed | used by |\n|---|---|\n")
	for _, u := range users {
		fmt.Fprintf(&b, "| `%s%s` | %s |\n", u, SeedSuffix, use(u.Participant))
	}
	if certified {
		b.WriteString(readmeTLS)
	}
	return []byte(b.String())
}
