package credentials

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rehome-dev/rehome/bus"
)

// replyWithin is how long after a question a function may answer it: longer than anybody waits for the answer.
const replyWithin = "10m"

// serverConfig is the part of a server's configuration with the rights of all users.
func serverConfig(users []user) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by rehome setup --auth, which writes it anew. It holds no secrets.\n"+
		"# Every server has it in its configuration, with the line: include %q\n"+
		"accounts {\n  %s {\n    jetstream: enabled\n    users: [\n", ServerConfig, bus.Account)
	for _, u := range users {
		writeUser(&b, u)
	}
	b.WriteString("    ]\n  }\n}\n")
	return b.Bytes()
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

// writeAllowed writes what is allowed. What is not there would be allowed altogether, so nothing has to be forbidden.
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

// use says who gets the seed of a role, and how.
func use(p bus.Participant) string {
	switch p.Role {
	case bus.RoleSetup:
		return "`rehome setup`, once"
	case bus.RoleWatcher, bus.RoleFunctions, bus.RoleDispatcher, bus.RoleActuator, bus.RoleMaintenance:
		return "`rehome " + string(p.Role) + "`"
	case bus.RoleAll:
		return "`rehome run` with these servers"
	case bus.RoleReader:
		return "`rehome events`, `rehome status`, `rehome loops`, and programs that read the past"
	case bus.RoleListener:
		return "programs that listen to what happens from now on"
	case bus.RoleForwarder:
		return "`rehome forward`, under any name"
	case bus.RoleOperator:
		return "people: `rehome dead`, `rehome loops clear`, `rehome forward --remove`"
	case bus.RoleFunction:
		return "the function " + p.Name + ", which is asked on `" + p.Subject + "`"
	case bus.RoleSender:
		return "the program that asks as " + p.Name + ", such as `rehome request --sender " + p.Name + "`"
	}
	return ""
}

// readme says what goes where.
func readme(users []user, certified bool) []byte {
	var b strings.Builder
	b.WriteString("# Who takes part on the bus\n\n" +
		"Written by `rehome setup --auth`. Run it again to add somebody, with everybody who is to stay: seeds that are here\n" +
		"are kept. Files that end in `.nk` or `.key` are secrets.\n\n" +
		"1. Each NATS server gets `" + ServerConfig + "`, by the line `include \"" + ServerConfig + "\"` in its configuration,\n" +
		"   and is told of changes with `nats-server --signal reload`.\n" +
		"2. Each participant gets its own seed and nobody else's. Programs of Rehome find it by `REHOME_NATS_NKEY_FILE`, and\n" +
		"   receive answers below `_INBOX_` and the name of the file.\n\n" +
		"| seed | who uses it |\n|---|---|\n")
	for _, u := range users {
		fmt.Fprintf(&b, "| `%s%s` | %s |\n", u, SeedSuffix, use(u.Participant))
	}
	if certified {
		b.WriteString(readmeTLS)
	}
	return []byte(b.String())
}
