package walls

// module is the path of this module. Rules name its packages relative to it: watcher is one package, functions/... includes the
// packages below. Other modules are import paths that include the packages below.
const module = "github.com/rehome-dev/rehome"

// rule is a forbidden import.
type rule struct {
	// packages lists the packages with this rule, without their test files.
	packages []string
	// except lists exceptions from packages.
	except []string
	// never lists the packages that must not be imported, directly or indirectly.
	never []string
	// direct limits the rule to direct imports.
	direct bool
	// because is the reason.
	because string
}

// rules are in the order of the architecture: the roles, the pure packages, the contract, the tests.
var rules = []rule{
	{
		packages: []string{"cluster/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "maintenance/...", "bus/..."},
		because: "every role uses the read model, so it must not depend on a role",
	},
	{
		packages: []string{"watcher/..."}, never: []string{"functions/...", "actuator/...", "bus/..."},
		because: "the watcher publishes scopes; app connects the functions that answer",
	},
	{
		packages: []string{"functions/..."}, never: []string{"watcher/...", "actuator/...", "bus/..."},
		because: "a strategy depends only on its scope, so it can run anywhere and be replayed",
	},
	{
		packages: []string{"actuator/..."}, never: []string{"watcher/...", "functions/...", "bus/..."},
		because: "the actuator checks intents with the live pod, whatever their source",
	},
	{
		packages: []string{"maintenance/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "bus/..."},
		because: "maintenance moves pods with intents, like every other source",
	},
	{
		packages: []string{"maintenance/plan"}, never: []string{"k8s.io/client-go", "github.com/nats-io"},
		because: "planning is pure: every fact, and the time, are arguments",
	},
	{
		packages: []string{"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/...", "fit/...", "schemas/..."},
		never:    []string{"maintenance/..."},
		because:  "other roles know only the mark of a maintenance on a node",
	},
	{
		packages: []string{"..."}, except: []string{"kubeevents", "actuator", "maintenance", "test/..."}, direct: true, never: []string{"kubeevents"},
		because: "Kubernetes Events are derived from verdicts, and from the status of maintenances",
	},
	{
		packages: []string{"bus/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "policy/...", "fit/..."},
		because: "the bus does not depend on the content of events",
	},
	{
		packages: []string{"functions/...", "policy/...", "fit/...", "schemas/..."},
		never:    []string{"k8s.io/client-go", "github.com/nats-io"},
		because:  "decisions are pure: a function holds no credentials and has no way to use any",
	},
	{
		packages: []string{"watcher/...", "actuator/...", "maintenance/..."}, never: []string{"github.com/nats-io"},
		because: "only the bus speaks NATS, so that its permissions and pitfalls live in one place",
	},
	{
		packages: []string{"bus/..."}, never: []string{"k8s.io/client-go"},
		because: "the bus holds no Kubernetes credentials",
	},
	{
		packages: []string{"..."}, except: []string{"bus", "app/...", "test/..."}, direct: true, never: []string{"bus/embed"},
		because: "app composes the processes, and decides which of them runs the NATS server",
	},
	{
		packages: []string{"..."}, except: []string{"kubeevents", "test/..."}, direct: true,
		never:   []string{"k8s.io/client-go/tools/events", "k8s.io/client-go/tools/record"},
		because: "Kubernetes Events are written in one place, at a limited rate",
	},
	{
		packages: []string{"..."},
		except: []string{
			"cluster/...", "watcher/...", "actuator/...", "maintenance/...", "kubeevents", "app/...", "api/...", "cli/...",
			"simulate/objects", "test/...",
		},
		direct:  true,
		never:   []string{"k8s.io/client-go"},
		because: "the import diagram is the permission diagram: the read model and three roles talk to the API server",
	},
	{
		packages: []string{"simulate"}, never: []string{"bus/...", "github.com/nats-io"},
		because: "a simulation needs no bus",
	},
	{
		packages: []string{"simulate"}, direct: true, never: []string{"k8s.io/client-go"},
		because: "a simulation does not depend on the source of its objects",
	},
	{
		packages: []string{"simulate/objects"}, never: []string{"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/..."},
		because: "reading objects does not depend on their use",
	},
	{
		packages: []string{"policy/...", "fit/..."}, never: []string{"watcher/...", "functions/...", "actuator/...", "bus/..."},
		because: "the roles share these rules, so they must not depend on a role",
	},
	{
		packages: []string{"schemas/..."},
		never:    []string{"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/...", "fit/..."},
		because:  "programs outside of Rehome import the contract",
	},
	{
		packages: []string{"trace/..."}, never: []string{
			"watcher/...", "functions/...", "actuator/...", "bus/...", "policy/...", "fit/...", "k8s.io/client-go", "github.com/nats-io",
		},
		because: "a span depends only on its event",
	},
	{
		packages: []string{"..."}, except: []string{"trace/...", "app", "cli/...", "cmd/rehome", "test/kit/tracetest"},
		never:   []string{"trace/...", "go.opentelemetry.io"},
		because: "roles do not know about traces; app exports their events",
	},
	{
		packages: []string{"..."}, except: forTests, never: forTests,
		because: "programs must not contain test code",
	},
	{
		packages: []string{"..."}, except: forTests, direct: true,
		never: []string{"testing", "go.uber.org/goleak", "golang.org/x/tools",
			"github.com/prometheus/common", "go.opentelemetry.io/proto", "google.golang.org/protobuf"},
		because: "these are for tests and their helper packages",
	},
	{
		packages: []string{"..."}, except: []string{"schemas/validation", "policy/strict"}, direct: true,
		never:   []string{"github.com/santhosh-tekuri/jsonschema"},
		because: "one package compiles the schemas of events, and one the schemas of arguments",
	},
	{
		packages: []string{"..."}, except: []string{"schemas/validation", "cli/...", "cmd/rehome", "test/..."},
		never:   []string{"schemas/validation"},
		because: "the roles read events with Go types; schemas are for people, tests and other languages",
	},
	{
		packages: []string{"..."},
		never:    []string{"k8s.io/kubernetes", "sigs.k8s.io/kwok", "go.etcd.io", "github.com/golangci", "sigs.k8s.io/controller-tools"},
		because:  "tests run servers and tools as programs from separate modules",
	},
}

// allowance is the complete list of direct imports of a package, in addition to the standard library.
type allowance struct {
	path    string
	may     []string
	because string
}

// onlyFrom has allowed imports, while rules has forbidden ones.
var onlyFrom = []allowance{
	{
		path: "schemas", may: []string{"k8s.io/api", "k8s.io/apimachinery", "schemas/v1alpha1"},
		because: "the contract depends only on types of the Kubernetes API",
	},
	{
		path: "bus/embed", may: []string{"github.com/nats-io"},
		because: "the server knows nothing about the events that it stores",
	},
	{
		path: "schemas/v1alpha1", may: []string{"k8s.io/apimachinery"},
		because: "the kinds depend only on packages that every Kubernetes client has",
	},
}

// forTests are the packages that only tests import.
var forTests = []string{"test/..."}

// roles are the packages of the roles. Only wiring may import two of them.
var roles = []string{"watcher/...", "functions/...", "actuator/...", "maintenance/...", "bus/..."}

// wiring may import any number of roles.
var wiring = []string{"api/...", "app/...", "cli/...", "cmd/rehome", "explain", "simulate", "status", "test/..."}

// writers may change the cluster.
var writers = []string{"actuator/...", "maintenance/...", "test/..."}
