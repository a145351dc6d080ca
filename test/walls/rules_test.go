package walls

// module is the path of this module. Rules name its packages relative to it: watcher is the package, functions/... the
// package and all below. Other modules are named by their import path, with everything below it.
const module = "github.com/rehome-dev/rehome"

// rule is one wall of the house.
type rule struct {
	// who are the packages that the rule binds, test files excepted.
	who []string
	// except are packages that who would name but that the rule does not bind.
	except []string
	// never are the packages that must not be reached, through whatever other packages.
	never []string
	// direct limits the rule to what the source of the package itself imports.
	direct bool
	// because is the reason.
	because string
}

// rules is the whole list, in the order of the picture in the design: the roles, the pure packages, the contract, the
// tests.
var rules = []rule{
	{
		who: []string{"cluster/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "maintenance/...", "bus/..."},
		because: "the read model shows the cluster to every role and knows none",
	},
	{
		who: []string{"watcher/..."}, never: []string{"functions/...", "actuator/...", "bus/..."},
		because: "the watcher asks by sending scopes; who answers, and over what, is wired in app",
	},
	{
		who: []string{"functions/..."}, never: []string{"watcher/...", "actuator/...", "bus/..."},
		because: "a strategy knows its scope and nothing else, so that it can run anywhere and be replayed",
	},
	{
		who: []string{"actuator/..."}, never: []string{"watcher/...", "functions/...", "bus/..."},
		because: "the actuator judges intents by the live pod, whoever made them",
	},
	{
		who: []string{"maintenance/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "bus/..."},
		because: "maintenance asks the actuator to move pods, by intents like everyone",
	},
	{
		who: []string{"maintenance/plan"}, never: []string{"k8s.io/client-go", "github.com/nats-io"},
		because: "planning is pure: every fact, and the time, are arguments",
	},
	{
		who:     []string{"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/...", "fit/...", "schemas/..."},
		never:   []string{"maintenance/..."},
		because: "no other role knows maintenances, but for the mark on a node",
	},
	{
		who: []string{"..."}, except: []string{"kubeevents", "actuator", "maintenance", "test/..."}, direct: true, never: []string{"kubeevents"},
		because: "Kubernetes Events are derived from verdicts, and from the status of maintenances",
	},
	{
		who: []string{"bus/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "policy/...", "fit/..."},
		because: "the bus carries events and does not know what they mean",
	},
	{
		who:     []string{"functions/...", "policy/...", "fit/...", "schemas/..."},
		never:   []string{"k8s.io/client-go", "github.com/nats-io"},
		because: "decisions are pure: a function holds no credentials and has no way to use any",
	},
	{
		who: []string{"watcher/...", "actuator/...", "maintenance/..."}, never: []string{"github.com/nats-io"},
		because: "only the bus speaks NATS, so that its permissions and pitfalls live in one place",
	},
	{
		who: []string{"bus/..."}, never: []string{"k8s.io/client-go"},
		because: "the bus holds no Kubernetes credentials",
	},
	{
		who: []string{"..."}, except: []string{"kubeevents", "test/..."}, direct: true,
		never:   []string{"k8s.io/client-go/tools/events", "k8s.io/client-go/tools/record"},
		because: "Kubernetes Events are written in one place, at a limited rate",
	},
	{
		who: []string{"..."},
		except: []string{
			"cluster/...", "watcher/...", "actuator/...", "maintenance/...", "kubeevents", "app/...", "api/...", "cli/...",
			"simulate/objects", "test/...",
		},
		direct:  true,
		never:   []string{"k8s.io/client-go"},
		because: "the import diagram is the permission diagram: the read model and three roles talk to the API server",
	},
	{
		who: []string{"simulate"}, never: []string{"bus/...", "github.com/nats-io"},
		because: "a simulation needs no bus",
	},
	{
		who: []string{"simulate"}, direct: true, never: []string{"k8s.io/client-go"},
		because: "a simulation decides about objects, wherever they come from",
	},
	{
		who: []string{"simulate/objects"}, never: []string{"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/..."},
		because: "reading objects has nothing to do with what they are for",
	},
	{
		who: []string{"policy/...", "fit/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "bus/..."},
		because: "the roles share these rules; the rules know no role",
	},
	{
		who:     []string{"schemas/..."},
		never:   []string{"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/...", "fit/..."},
		because: "the contract is imported by programs outside Rehome, without Rehome's machinery",
	},
	{
		who: []string{"trace/..."}, never: []string{
			"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/...", "fit/...", "k8s.io/client-go", "github.com/nats-io",
		},
		because: "a span says what an event says, whoever made it and whatever carried it",
	},
	{
		who: []string{"..."}, except: []string{"trace/...", "app", "cli/...", "cmd/rehome", "test/tracetest"},
		never:   []string{"trace/...", "go.opentelemetry.io"},
		because: "no role knows that it is traced: its events leave and come in through one place of app",
	},
	{
		who: []string{"..."}, except: forTests, never: forTests,
		because: "what is only there to test is not shipped",
	},
	{
		who: []string{"..."}, except: forTests, direct: true,
		never: []string{"testing", "go.uber.org/goleak", "golang.org/x/tools",
			"go.opentelemetry.io/proto", "google.golang.org/protobuf"},
		because: "these are for tests and their helper packages",
	},
	{
		who: []string{"..."}, except: []string{"schemas/validation", "policy/strict"}, direct: true,
		never:   []string{"github.com/santhosh-tekuri/jsonschema"},
		because: "one place compiles the schemas of events, so that all say the same about one; one other those of arguments",
	},
	{
		who: []string{"..."}, except: []string{"schemas/validation", "cli/...", "cmd/rehome", "test/..."},
		never:   []string{"schemas/validation"},
		because: "the roles read events with Go types; schemas are for people, tests and other languages",
	},
}

// allowance is the whole of what one package may import directly, besides the standard library.
type allowance struct {
	who     string
	may     []string
	because string
}

// onlyFrom says what is allowed, where a rule says what is forbidden.
var onlyFrom = []allowance{
	{
		who: "schemas", may: []string{"k8s.io/api", "k8s.io/apimachinery", "schemas/v1alpha1"},
		because: "whoever imports the contract gets the types of the Kubernetes API and nothing else",
	},
	{
		who: "schemas/v1alpha1", may: []string{"k8s.io/apimachinery"},
		because: "whoever imports the kinds gets what every client of Kubernetes has anyway, schemes included, and nothing else",
	},
}

// forTests are the packages that only tests import: programs and tests of the whole, and helper packages.
var forTests = []string{"test/...", "bus/bustest"}

// roles are the parts of the house of which only one package may know two.
var roles = []string{"watcher/...", "functions/...", "actuator/...", "maintenance/...", "bus/..."}

// wiring may import any number of roles: the program, evaluation offline, and tests that look at several parts.
var wiring = []string{"api/...", "app/...", "cli/...", "cmd/rehome", "explain", "simulate", "test/..."}

// planned are packages that rules name before they exist. A planned package that exists is an error, so that the list
// empties itself.
var planned []string

// writers are the packages that may change the cluster.
var writers = []string{"actuator/...", "maintenance/...", "test/..."}

// banned are modules that must never be in go.mod: servers of Kubernetes, which tests run as programs, and tools.
var banned = []string{"k8s.io/kubernetes", "sigs.k8s.io/kwok", "go.etcd.io", "github.com/golangci", "sigs.k8s.io/controller-tools"}
