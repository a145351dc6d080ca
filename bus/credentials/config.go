package credentials

import (
	"bytes"
	"embed"
	"text/template"

	"github.com/rehome-dev/rehome/bus"
)

// templates are the texts of [ServerConfig] and [Readme].
//
//go:embed *.tmpl
var templates embed.FS

// replyWithin is how long a function may take to answer: longer than the dispatcher waits.
const replyWithin = "10m"

// fill returns the text of a template.
func fill(name string, data any) []byte {
	t := template.Must(template.New(name).Funcs(template.FuncMap{
		"account":      func() string { return bus.Account },
		"answersOften": bus.AnswersOften,
		"replyWithin":  func() string { return replyWithin },
		"use":          use,
	}).ParseFS(templates, name))
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(err) // a mistake in the template
	}
	return b.Bytes()
}

// account is an account of the servers.
type account struct {
	Name string
	// Services and Streams are the subjects that other accounts import from the main account, with the names of these accounts.
	Services, Streams map[string][]string
	// Asks and Hears are the subjects that this account imports from the main account.
	Asks, Hears []string
	Users       []user
}

// IsMain returns whether the account is [bus.Account].
func (a account) IsMain() bool { return a.Name == bus.Account }

// serverConfig returns the part of the configuration of a server with the accounts and rights of all users. A participant with an
// account of its own is alone in it.
func serverConfig(users []user) []byte {
	main := &account{Name: bus.Account, Services: map[string][]string{}, Streams: map[string][]string{}}
	all := []*account{main}
	for _, u := range users {
		if u.Account() == bus.Account {
			main.Users = append(main.Users, u)
			continue
		}
		own := &account{Name: u.Account(), Users: []user{u}}
		own.Asks, own.Hears = u.Rights.Imports()
		for _, s := range own.Asks {
			main.Services[s] = append(main.Services[s], own.Name)
		}
		for _, s := range own.Hears {
			main.Streams[s] = append(main.Streams[s], own.Name)
		}
		all = append(all, own)
	}
	return fill(ServerConfig+".tmpl", all)
}

// roleUse is a role and the programs that use its seed.
type roleUse struct {
	role bus.Role
	use  string
}

// roles returns the roles in the order of the files.
func roles() []roleUse {
	return []roleUse{
		{bus.RoleSetup, "`rehome setup`, and `rehome forward --add` and `--remove`"},
		{bus.RoleWatcher, "`rehome watcher`"},
		{bus.RoleFunctions, "`rehome functions`"},
		{bus.RoleDispatcher, "`rehome dispatcher`"},
		{bus.RoleActuator, "`rehome actuator`"},
		{bus.RoleMaintenance, "`rehome maintenance`"},
		{bus.RoleAPI, "`rehome api`"},
		{bus.RoleAll, "`rehome run` with these servers"},
		{bus.RoleReader, "`rehome events`, `status`, `explain`, and `get` except `deadletters`; programs that read the past"},
		{bus.RoleListener, "programs that listen to what happens from now on"},
		{bus.RoleOperator, "people: `rehome get deadletters`, `rehome deadletters`, and `rehome breakers clear`"},
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
	return fill(Readme+".tmpl", map[string]any{"Users": users, "Certified": certified})
}
