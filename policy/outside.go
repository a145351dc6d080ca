package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Outside is a strategy that is asked outside of this process, as the section functions of the file says. It is one that
// the file declares, or a built-in one that somebody else is to answer for.
type Outside struct {
	// Strategy is what profiles enable. For the name of a built-in strategy it is that strategy.
	Strategy Strategy
	// URL is where its scopes are posted. Empty: Subject.
	URL string
	// Subject is the NATS subject on which it is asked. Empty: URL.
	Subject string
	// Timeout is how long one question may take.
	Timeout time.Duration
	// Parallel is how many questions are asked at once.
	Parallel int
}

// What an entry of functions gets that says nothing about it.
const (
	DefaultOutsideTimeout  = 10 * time.Second
	DefaultOutsideParallel = 8
)

// The bounds of what an entry of functions may say. A shorter time is over before a busy network answers; in a longer one
// the cluster has moved on.
const (
	shortestQuestion = 100 * time.Millisecond
	longestQuestion  = 10 * time.Minute
	mostQuestions    = 256
)

// OutsideOf returns how the strategy of that name is asked outside of this process, and whether it is.
func (p Policy) OutsideOf(strategy string) (Outside, bool) {
	for _, o := range p.Outside {
		if o.Strategy.Name == strategy {
			return o, true
		}
	}
	return Outside{}, false
}

// Declared says whether the policy itself describes the strategy, which is then no built-in one.
func (o Outside) Declared() bool {
	_, own := o.arguments()
	return own
}

// arguments are the defaults of a strategy that the policy describes; ok is false for a built-in one.
func (o Outside) arguments() (args *ownArguments, ok bool) {
	described, ok := o.Strategy.NewArgs().(interface{ own() *ownArguments })
	if !ok {
		return nil, false
	}
	return described.own(), true
}

// ownKinds are the kinds of scopes that a strategy which the policy describes can decide on.
func ownKinds() []schemas.ScopeKind {
	return []schemas.ScopeKind{
		schemas.NodeKind, schemas.PodKind, schemas.WorkloadKind, schemas.DomainKind, schemas.SpreadKind, schemas.UsageKind,
	}
}

// fileFunction is one entry of functions as it is written.
type fileFunction struct {
	Name       string                     `json:"name"`
	Scope      schemas.ScopeKind          `json:"scope,omitzero"`
	Wakes      []schemas.DeltaKind        `json:"wakes,omitzero"`
	Point      Point                      `json:"point,omitzero"`
	Priority   Priority                   `json:"priority,omitzero"`
	RenewsPods bool                       `json:"renewsPods,omitzero"`
	MayReturn  bool                       `json:"mayReturn,omitzero"`
	Facts      []Fact                     `json:"facts,omitzero"`
	Summary    string                     `json:"summary,omitzero"`
	Args       map[string]json.RawMessage `json:"args,omitzero"`
	ArgsSchema map[string]json.RawMessage `json:"argsSchema,omitzero"`
	HTTP       *fileHTTP                  `json:"http,omitzero"`
	NATS       *fileNATS                  `json:"nats,omitzero"`
}

// fileHTTP says that a function is asked over HTTP.
type fileHTTP struct {
	URL      string          `json:"url"`
	Timeout  metav1.Duration `json:"timeout,omitzero"`
	Parallel int             `json:"parallel,omitzero"`
}

func (f *fileHTTP) SetDefaults() {
	f.Timeout.Duration, f.Parallel = DefaultOutsideTimeout, DefaultOutsideParallel
}

// fileNATS says that a function is asked on a NATS subject.
type fileNATS struct {
	Subject  string          `json:"subject"`
	Timeout  metav1.Duration `json:"timeout,omitzero"`
	Parallel int             `json:"parallel,omitzero"`
}

func (f *fileNATS) SetDefaults() {
	f.Timeout.Duration, f.Parallel = DefaultOutsideTimeout, DefaultOutsideParallel
}

// functions reads the functions of the file, and makes known what they declare. What is wrong with one of them is reported
// and it is known all the same, so that a profile that names it is not a second problem.
func (r *reader) functions(written []fileFunction) []Outside {
	builtIn := r.known
	r.known = slices.Clone(r.known)
	var all []Outside
	lines := map[string]int{}
	for i, f := range written {
		path := "functions" + Item(i)
		if first, twice := lines[f.Name]; twice && f.Name != "" {
			r.check(path+".name", &FieldError{Value: f.Name, Right: "keep one",
				Reason: fmt.Sprintf("is the name of the function in line %d", first)})
			continue
		}
		lines[f.Name] = strict.LineOf(r.root, path, 0)
		at := slices.IndexFunc(builtIn, func(s Strategy) bool { return s.Name == f.Name })
		o := f.transport()
		if at >= 0 {
			o.Strategy = builtIn[at]
			r.check(path, f.onlyTransport())
		} else {
			var err error
			o.Strategy, err = f.strategy()
			r.check(path, err)
			r.known = append(r.known, o.Strategy)
		}
		r.check(path, f.validateTransport())
		all = append(all, o)
	}
	return all
}

// transport is how the function is asked, without its strategy.
func (f fileFunction) transport() Outside {
	switch {
	case f.HTTP != nil:
		return Outside{URL: f.HTTP.URL, Timeout: f.HTTP.Timeout.Duration, Parallel: f.HTTP.Parallel}
	case f.NATS != nil:
		return Outside{Subject: f.NATS.Subject, Timeout: f.NATS.Timeout.Duration, Parallel: f.NATS.Parallel}
	}
	return Outside{}
}

// onlyTransport refuses what a function says about itself that a built-in strategy says already.
func (f fileFunction) onlyTransport() error {
	var found Findings
	for _, field := range []struct {
		name  string
		given bool
		right string
	}{
		{"scope", f.Scope != "", "remove it"}, {"wakes", f.Wakes != nil, "remove it"}, {"point", f.Point != "", "remove it"},
		{"priority", f.Priority != "", "remove it"}, {"renewsPods", f.RenewsPods, "remove it"},
		{"mayReturn", f.MayReturn, "remove it"}, {"facts", f.Facts != nil, "remove it"},
		{"summary", f.Summary != "", "remove it"}, {"args", f.Args != nil, "write them in the pluginConfig of a profile"},
		{"argsSchema", f.ArgsSchema != nil, "remove it"},
	} {
		if field.given {
			found.Add(field.name, nil, fmt.Sprintf("is not for %s, a built-in strategy that brings its own", f.Name), field.right)
		}
	}
	return found.Err()
}

// strategy is the strategy that the function describes; each error is a *[FieldError].
func (f fileFunction) strategy() (Strategy, error) {
	var found Findings
	found.Join("name", validateOwnName(f.Name))
	if !slices.Contains(ownKinds(), f.Scope) {
		found.Add("scope", shown(f.Scope), notKnown(f.Scope), strict.Suggest(string(f.Scope), texts(ownKinds())))
	}
	found.Join("wakes", validateWakes(f.Wakes))
	if f.Point != "" && f.Point != Deschedule && f.Point != Balance {
		found.Add("point", f.Point, "is not known", fmt.Sprintf("want %s or %s", Deschedule, Balance))
		f.Point = anyPoint
	}
	found.Join("", f.validateTraits())
	maps.DeleteFunc(f.Args, func(_ string, value json.RawMessage) bool { return value == nil }) // a null is no entry
	defaults := ownArguments{fields: f.Args}
	if f.ArgsSchema != nil {
		var err error
		defaults.schema, err = strict.NewSchema(f.ArgsSchema)
		found.Join("argsSchema", err)
	}
	if f.Args != nil {
		found.Join("args", defaults.schema.Validate(f.Args, strict.Part))
	}
	return Strategy{
		Name: f.Name, Point: cmp.Or(f.Point, Deschedule), Summary: f.Summary, Scope: f.Scope, Wakes: f.Wakes,
		Traits: Traits{
			Priority: cmp.Or(f.Priority, DefaultPriority(f.Point)), RenewsPods: f.RenewsPods, MayReturn: f.MayReturn,
			Facts: f.Facts, Opaque: true,
		},
		NewArgs: newOwnArgs(f.Scope, defaults),
	}, found.Err()
}

func (f fileFunction) validateTraits() error {
	var found Findings
	switch f.Priority {
	case "", PriorityNode, PriorityViolation, PriorityBalance:
	case PriorityManual:
		found.Add("priority", f.Priority, "is for requests alone", "want node, violation or balance")
	default:
		found.Add("priority", f.Priority, "is not known", "want node, violation or balance")
	}
	for i, fact := range f.Facts {
		switch {
		case fact != FactElsewhere:
			found.Add("facts"+Item(i), fact, "is not known", "want "+string(FactElsewhere))
		case f.Scope != schemas.NodeKind:
			found.Add("facts"+Item(i), fact, "is only in scopes of the kind node", "remove it")
		case slices.Contains(f.Facts[:i], fact):
			found.Add("facts"+Item(i), fact, "is given twice", "keep one")
		}
	}
	return found.Err()
}

// anyPoint stands for an extension point that could not be read: where the strategy is enabled is no second problem.
const anyPoint Point = "?"

// validateOwnName says what is wrong with the name of a strategy that the file declares. It is a part of NATS subjects and
// the name of a consumer.
func validateOwnName(name string) error {
	var found Findings
	const right = "want 1 to 63 letters, digits and hyphens"
	switch plain, err := regexp.MatchString(`^[A-Za-z0-9-]{1,63}$`, name); {
	case err != nil:
		return err
	case name == "":
		found.Add("", nil, "is missing", right)
	case name == EvictorName, name == schemas.RequestStrategy, name == schemas.MaintenanceStrategy:
		found.Add("", name, "is not a strategy", "choose another name")
	case !plain:
		found.Add("", name, "cannot be the name of a strategy", right)
	}
	return found.Err()
}

func validateWakes(wakes []schemas.DeltaKind) error {
	var found Findings
	if len(wakes) == 0 {
		found.Add("", nil, "is missing: nothing would ever wake the strategy", "name the changes after which it can decide differently")
	}
	for i, kind := range wakes {
		switch {
		case !slices.Contains(schemas.DeltaKinds(), kind):
			found.Add(Item(i), kind, "is not a kind of change", strict.Suggest(string(kind), texts(schemas.DeltaKinds())))
		case slices.Contains(wakes[:i], kind):
			found.Add(Item(i), kind, "is given twice", "keep one")
		}
	}
	return found.Err()
}

func (f fileFunction) validateTransport() error {
	var found Findings
	switch {
	case f.HTTP == nil && f.NATS == nil:
		found.Add("", nil, "does not say where it is asked", "add http: {url: http://HOST} or nats: {subject: SUBJECT}")
	case f.HTTP != nil && f.NATS != nil:
		found.Add("nats", nil, "cannot be used together with http", "keep one")
	}
	if h := f.HTTP; h != nil {
		found.Join("http", validateAddress(h.URL))
		found.Join("http", validateQuestions(h.Timeout, h.Parallel))
	}
	if n := f.NATS; n != nil {
		found.Join("nats", validateSubject(n.Subject))
		found.Join("nats", validateQuestions(n.Timeout, n.Parallel))
	}
	return found.Err()
}

// validateAddress says what is wrong with the URL of a function. A URL with a password is never shown.
func validateAddress(address string) error {
	var found Findings
	const right = "write one such as http://keep-off-spot.default.svc"
	u, err := url.Parse(address)
	switch {
	case address == "":
		found.Add("url", nil, "is missing", right)
	case err == nil && u.User != nil, err != nil && strings.Contains(address, "@"):
		found.Add("url", nil, "holds a user", "remove what stands before the @")
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		found.Add("url", address, "is not the URL of a server", right)
	case u.Fragment != "":
		found.Add("url", address, "has a part behind a #, which no server gets to see", "remove it")
	}
	return found.Err()
}

// validateSubject says what is wrong with the subject of a function.
func validateSubject(subject string) error {
	var found Findings
	const right = "write one such as functions.keep-off-spot"
	tokens := strings.Split(subject, ".")
	blank := func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\u00a0' }
	switch first := tokens[0]; {
	case subject == "":
		found.Add("subject", nil, "is missing", right)
	case strings.ContainsAny(subject, "*>"):
		found.Add("subject", subject, "has a wildcard", right)
	case strings.ContainsFunc(subject, blank) || slices.Contains(tokens, ""):
		found.Add("subject", subject, "is not a NATS subject", right)
	case first == schemas.Prefix, strings.HasPrefix(first, "$"), strings.HasPrefix(first, "_INBOX"):
		found.Add("subject", subject, fmt.Sprintf("begins with %s, which others use", first), right)
	}
	return found.Err()
}

func validateQuestions(timeout metav1.Duration, parallel int) error {
	var found Findings
	if d := timeout.Duration; d < shortestQuestion || d > longestQuestion {
		found.Add("timeout", timeout, fmt.Sprintf("must be at least %v and at most %v", shortestQuestion, longestQuestion), "")
	}
	if parallel < 1 || parallel > mostQuestions {
		found.Add("parallel", parallel, fmt.Sprintf("must be at least 1 and at most %d", mostQuestions), "")
	}
	return found.Err()
}

// written is an entry of functions as it stands in a file.
func (o Outside) written() fileFunction {
	s := o.Strategy
	f := fileFunction{Name: s.Name}
	if args, own := o.arguments(); own {
		f.Scope, f.Wakes, f.Summary, f.Args = s.Scope, s.Wakes, s.Summary, args.fields
		f.RenewsPods, f.MayReturn, f.Facts = s.RenewsPods, s.MayReturn, s.Facts
		if s.Point != Deschedule {
			f.Point = s.Point
		}
		if s.Priority != DefaultPriority(s.Point) {
			f.Priority = s.Priority
		}
		if args.schema != nil {
			f.ArgsSchema = strict.Object(args.schema.Written)
		}
	}
	timeout, parallel := metav1.Duration{Duration: o.Timeout}, o.Parallel
	if o.Timeout == DefaultOutsideTimeout {
		timeout = metav1.Duration{}
	}
	if parallel == DefaultOutsideParallel {
		parallel = 0
	}
	if o.URL != "" {
		f.HTTP = &fileHTTP{o.URL, timeout, parallel}
	} else {
		f.NATS = &fileNATS{o.Subject, timeout, parallel}
	}
	return f
}

// shown is a value as a message shows it: not at all when it is empty.
func shown[T ~string](value T) any {
	if value == "" {
		return nil
	}
	return value
}

func notKnown[T ~string](value T) string {
	if value == "" {
		return "is missing"
	}
	return "is not a kind of scope"
}

func texts[T ~string](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}
