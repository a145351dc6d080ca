package run

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/notify"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
)

// ForwardServedAt is the default address of the metrics of a forwarder. It differs from the addresses of `rehome run` on the same
// machine.
const ForwardServedAt = "127.0.0.1:8648"

const forwardParallel = 8

func forwardCommand() *cobra.Command {
	var f forwardFlags
	c := &cobra.Command{
		Use:   "forward",
		Short: "Post events to a URL as CloudEvents, or notifications about them to Slack, Teams, or a webhook",
		Long: "Post the events of the history to a URL. Each event is a CloudEvent over HTTP, delivered at least once. The bus\n" +
			"keeps the progress under a name, so a restarted forwarder continues there, on any machine, and several forwarders\n" +
			"with one name share the work. Events with the same id and source are the same event. Several posts run at once, in no\n" +
			"order.\n\n" +
			"A sink accepts an event with status 2xx. While the sink is unreachable, or answers 401, 403, 502, 503, or 504,\n" +
			"events wait. After 404, 408, 409, 425, 429, or another 5xx, the event is posted again after Retry-After or a growing\n" +
			"delay, and becomes a dead letter after --tries. After any other status it becomes a dead letter at once: `rehome get\n" +
			"deadletters --by NAME`.\n\n" +
			"With --to slack, teams, or webhook, the command posts notifications for people instead: one message for each drain,\n" +
			"each storm, and each change with all its consequences. The URL of the service is a secret, so it comes from a file.\n" +
			"A message is sent when no more of its events arrive for --quiet. It is lost if the process is killed before that, or\n" +
			"if the service refuses it or does not accept it after --tries.\n\n" +
			"In Knative, a SinkBinding sets K_SINK, the URL; K_CE_OVERRIDES, additional attributes; and K_CA_CERTS, trusted\n" +
			"authorities in PEM, in addition to the authorities of the system.",
		Example: "  rehome forward --to http://127.0.0.1:8080/ --type verdict\n" +
			"  rehome forward --to https://audit.example/events --token-file token -n shop --outcome evicted,failed --since 24h\n\n" +
			"  # Messages for people, about two namespaces:\n" +
			"  rehome forward --to slack --url-file slack-url -n shop,bank\n\n" +
			"  # With servers that authenticate participants: create the name with setup.nk, forward with forwarder-audit.nk.\n" +
			"  rehome forward --add --name audit --type verdict --since 24h\n" +
			"  rehome forward --name audit --to https://audit.example/events\n\n" +
			"  # Forget the progress:\n" +
			"  rehome forward --remove --to http://127.0.0.1:8080/",
		Args: cobra.NoArgs,
	}
	s := cmdutil.Settings(c)
	if _, set := os.LookupEnv("REHOME_HTTP_ADDRESS"); !set {
		s.HTTPAddress = ForwardServedAt
	}
	s.Bus().HTTP()
	f.bind(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if f.remove {
			return removeForward(c, s, f)
		}
		plan, err := f.read()
		switch {
		case err != nil:
			return err
		case f.add:
			return addForward(c, s, plan.listener)
		}
		return forward(c.Context(), s.Settings, plan)
	}
	return c
}

type forwardFlags struct {
	filter          look.FilterFlags
	to, name, mode  string
	tokenFile       string
	urlFile         string // the URL of a service for notifications
	template        string
	quiet           time.Duration
	since           func() (time.Time, error)
	timeout         time.Duration
	parallel, tries int
	add, remove     bool
	// Knative sets K_SINK, K_CE_OVERRIDES and K_CA_CERTS.
	sink, overridesText, authoritiesText string
}

func (f *forwardFlags) bind(c *cobra.Command) {
	f.sink, f.overridesText, f.authoritiesText = os.Getenv("K_SINK"), os.Getenv("K_CE_OVERRIDES"), os.Getenv("K_CA_CERTS")
	f.filter.Bind(c, filter.Choices()+"; the default is all of them")
	flags := c.Flags()
	flags.StringVar(&f.to, "to", "", "URL of the sink (K_SINK), or slack, teams, or webhook for notifications")
	flags.StringVar(&f.urlFile, "url-file", "", "file with the URL for slack, teams, or webhook")
	flags.StringVar(&f.template, "template", "", "file with the template of notifications; the default fits the service")
	flags.DurationVar(&f.quiet, "quiet", notifyQuiet, "send a notification when no more of its events arrive for this time")
	flags.StringVar(&f.name, "name", "", "name of the progress on the bus; the default is derived from the URL")
	cmdutil.Choice(c, &f.mode, "mode", "", "binary (attributes as headers) or structured (one JSON object)", "binary", "structured")
	f.since = cmdutil.Since(c, "with a new name, start this long ago; the default is to start with new events")
	flags.IntVar(&f.parallel, "parallel", forwardParallel, "number of parallel posts")
	flags.DurationVar(&f.timeout, "timeout", post.DefaultTimeout, "time limit of one post")
	flags.IntVar(&f.tries, "tries", bus.DefaultTries, "how often to try an event that the sink answers but does not accept")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with a bearer token, read for each post")
	flags.BoolVar(&f.add, "add", false, "create the name on the bus with the filters and --since, and exit")
	flags.BoolVar(&f.remove, "remove", false, "remove the name and its progress from the bus, and exit")
}

// forwardPlan is the checked form of the flags.
type forwardPlan struct {
	listener bus.Listener
	filter   filter.Filter
	post     post.Config
	// template and quiet are for notifications. A nil template means that events are posted.
	template *notify.Template
	quiet    time.Duration
}

// read checks the flags and the variables of Knative.
func (f *forwardFlags) read() (p forwardPlan, err error) {
	if f.notifies() && len(f.filter.Types) == 0 {
		f.filter.Types = notifyTypes()
	}
	if p.filter, err = f.filter.Read(); err != nil {
		return p, err
	}
	if err := f.check(p.filter); err != nil {
		return p, err
	}
	if err := f.readNotify(&p); err != nil {
		return p, err
	}
	p.post = post.Config{URL: f.url(), Name: f.service(), Timeout: f.timeout, TokenFile: f.tokenFile, Connections: f.parallel}
	if f.mode == "structured" {
		p.post.Mode = post.Structured
	}
	if p.post.Extensions, err = Overrides(f.overridesText); err != nil {
		return p, fmt.Errorf("K_CE_OVERRIDES: %w", err)
	}
	if p.post.Authorities, err = authorities(f.authoritiesText); err != nil {
		return p, fmt.Errorf("K_CA_CERTS: %w", err)
	}
	p.listener = bus.Listener{
		Name: f.listener(), Channels: p.filter.Channels(), Parallel: f.parallel, Tries: f.tries,
	}
	p.listener.Since, err = f.since()
	return p, err
}

func (f *forwardFlags) check(chosen filter.Filter) error {
	if err := f.checkNotify(); err != nil {
		return err
	}
	switch {
	case f.add && f.listener() == "":
		return errors.New("--add: want --name, or --to with the URL that the name is derived from")
	case f.url() == "" && !f.add:
		return errors.New("no sink: name a URL with --to or K_SINK")
	case chosen.Wants(filter.Scope), chosen.Wants(filter.Request):
		return fmt.Errorf("--type: scopes and requests have no history: want %s", filter.Choices())
	case f.timeout <= 0:
		return fmt.Errorf("--timeout: want a duration such as 10s, got %v", f.timeout)
	case f.parallel < 1:
		return fmt.Errorf("--parallel: want at least 1, got %d", f.parallel)
	case f.tries < 1:
		return fmt.Errorf("--tries: want at least 1, got %d", f.tries)
	}
	if f.tokenFile != "" {
		if _, err := os.ReadFile(f.tokenFile); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	return nil
}

// url returns the URL of the sink. For notifications it returns the content of the file, or "".
func (f *forwardFlags) url() string {
	if f.notifies() {
		text, _ := os.ReadFile(f.urlFile) // check reports the error
		return strings.TrimSpace(string(text))
	}
	return cmp.Or(f.to, f.sink)
}

func (f *forwardFlags) listener() string {
	if f.name != "" || f.url() == "" {
		return f.name
	}
	if f.notifies() { // the path of the URL is a secret
		return "notify-" + f.to + "-" + hashOf(f.url())
	}
	return NameOf(f.url())
}

// NameOf returns a name for forwarding to a URL: its readable host and path, and a hash that distinguishes URLs without revealing
// their secrets.
func NameOf(to string) string {
	words := ""
	if u, err := url.Parse(to); err == nil {
		words = strings.Join(strings.FieldsFunc(u.Host+"/"+u.Path, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
		}), "-") + "-"
	}
	return "forward-" + words + hashOf(to)
}

func hashOf(url string) string {
	hash := sha256.Sum256([]byte(url))
	return hex.EncodeToString(hash[:4])
}

// Overrides parses the attributes that Knative adds to each event: {"extensions": {"NAME": "VALUE"}}. It returns nil for an empty
// text.
func Overrides(text string) (map[string]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var o struct {
		Extensions map[string]string `json:"extensions"`
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return nil, fmt.Errorf(`want {"extensions": {"NAME": "VALUE"}}: %w`, err)
	}
	lower := make(map[string]string, len(o.Extensions))
	for name, value := range o.Extensions {
		name = strings.ToLower(name) // like header names, they may have any case
		if err := cloudevent.CheckExtension(name); err != nil {
			return nil, err
		}
		if _, twice := lower[name]; twice {
			return nil, fmt.Errorf("attribute %q: want it once, got it in different cases", name)
		}
		lower[name] = value
	}
	return lower, nil
}

// addForward creates the consumer of a name.
func addForward(c *cobra.Command, s *cmdutil.Flags, l bus.Listener) error {
	if err := s.RefuseDryRun(); err != nil {
		return err
	}
	return cmdutil.WithBus(s.Settings, cmdutil.Setup, func(b *bus.Bus) error {
		if err := b.AddListener(c.Context(), l); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s: added\n", l.Name)
		return err
	})
}

// removeForward deletes the consumer of a name.
func removeForward(c *cobra.Command, s *cmdutil.Flags, f forwardFlags) error {
	name := f.listener()
	if name == "" {
		return fmt.Errorf("--remove: want --name, or --to with the URL that the name is derived from")
	}
	if err := s.RefuseDryRun(); err != nil {
		return err
	}
	return cmdutil.WithBus(s.Settings, cmdutil.Setup, func(b *bus.Bus) error {
		if err := b.RemoveListener(c.Context(), name); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s: removed\n", name)
		return err
	})
}

// authorities returns the authorities of the system and of a text in PEM, which Knative provides for sinks with a certificate
// from the cluster. It returns nil, which means the authorities of the system, if the text is empty. It ignores everything in the
// text except certificates.
func authorities(text string) (*x509.CertPool, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("authorities of the system: %w", err)
	}
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("want certificates of authorities in PEM, got no readable one")
	}
	return pool, nil
}
