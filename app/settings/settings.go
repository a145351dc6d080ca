package settings

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/bus"
)

// Settings are the settings that a process needs before it reads the policy. Each comes from the environment variable in its
// tag. The tags have the full names: with a prefix, envconfig also reads variables without it. A flag overrides the settings that
// users type.
type Settings struct {
	Policy     string `envconfig:"REHOME_POLICY" desc:"policy file"`
	Kubeconfig string `envconfig:"REHOME_KUBECONFIG" desc:"kubeconfig file; default: KUBECONFIG, the pod's service account, or ~/.kube/config"`
	Context    string `envconfig:"REHOME_CONTEXT" desc:"context of the kubeconfig; default: the current context"`
	DryRun     bool   `envconfig:"REHOME_DRY_RUN" desc:"decide everything and change nothing; API calls have dryRun=All"`
	Cluster    string `envconfig:"REHOME_CLUSTER" default:"default" desc:"name of the cluster in the source of every event"`
	// Installation begins the names of the leases, and the streams keep it.
	Installation string `envconfig:"REHOME_INSTALLATION" default:"rehome" desc:"name of this installation; a second one in a cluster needs another name and its own bus"`

	NATSURL      string `envconfig:"REHOME_NATS_URL" desc:"NATS servers; default: the embedded server, or the server at the local socket"`
	NATSNKey     string `envconfig:"REHOME_NATS_NKEY_FILE" desc:"file with the nkey seed of the client"`
	NATSCreds    string `envconfig:"REHOME_NATS_CREDS_FILE" desc:"credentials file of the client"`
	NATSCA       string `envconfig:"REHOME_NATS_CA_FILE" desc:"file with the certificate authorities of the servers"`
	NATSCert     string `envconfig:"REHOME_NATS_CERT_FILE" desc:"client certificate file"`
	NATSKey      string `envconfig:"REHOME_NATS_KEY_FILE" desc:"key file of the client certificate"`
	BusPrefix    string `envconfig:"REHOME_BUS_PREFIX" desc:"prefix of the names of streams and subjects, for several clusters in one NATS account"`
	NATSReplicas int    `envconfig:"REHOME_NATS_REPLICAS" default:"1" desc:"replicas of each stream, for setup: 1, 3, or 5"`

	Server          string `envconfig:"REHOME_SERVER" desc:"URL of the API for commands; default: the bus, or the API in its pod through the kubeconfig"`
	ServerTokenFile string `envconfig:"REHOME_SERVER_TOKEN_FILE" desc:"file with the bearer token for the API; read for each request"`
	ServerCAFile    string `envconfig:"REHOME_SERVER_CA_FILE" desc:"file with the certificate authorities of the API"`

	StoreDir     string `envconfig:"REHOME_STORE_DIR" desc:"directory of the embedded server; default: rehome in the user's cache directory"`
	StoreReserve int64  `envconfig:"REHOME_STORE_RESERVE" default:"67108864" desc:"free bytes that the embedded server leaves on its disk, at least 1 MiB"`
	Listen       string `envconfig:"REHOME_LISTEN" desc:"address of the embedded server for other programs, such as 0.0.0.0:4222; default: none"`
	ListenCert   string `envconfig:"REHOME_LISTEN_CERT_FILE" desc:"certificate file of the embedded server"`
	ListenKey    string `envconfig:"REHOME_LISTEN_KEY_FILE" desc:"key file of the certificate"`
	ListenAuth   string `envconfig:"REHOME_LISTEN_AUTH" desc:"directory with the keys of permitted programs, from rehome auth init"`

	History time.Duration `envconfig:"REHOME_HISTORY" default:"72h" desc:"how long the bus keeps events; at least 25h"`

	HTTPAddress string `envconfig:"REHOME_HTTP_ADDRESS" default:"127.0.0.1:8642" desc:"address of /metrics, /healthz, and /readyz; empty disables it"`

	HTTPTLS      string `envconfig:"REHOME_HTTP_TLS" default:"off" desc:"off, self-signed (created at start, in memory), or files"`
	HTTPCertFile string `envconfig:"REHOME_HTTP_CERT_FILE" desc:"certificate file for files; read again when it changes"`
	HTTPKeyFile  string `envconfig:"REHOME_HTTP_KEY_FILE" desc:"key file for files; read again when it changes"`
	HTTPAuth     bool   `envconfig:"REHOME_HTTP_AUTH" desc:"serve /metrics and profiles only to users with the right in the cluster; requires TLS"`
	HTTP2        bool   `envconfig:"REHOME_HTTP2" desc:"offer HTTP/2 over TLS, also for the API"`
	Profiles     bool   `envconfig:"REHOME_PROFILES" desc:"serve profiles at /debug/pprof/; requires REHOME_HTTP_AUTH or a loopback address"`

	APILocal    string `envconfig:"REHOME_API_LOCAL" default:"127.0.0.1:8644" desc:"loopback address of the API and the page, without tokens; empty disables it"`
	APIAddress  string `envconfig:"REHOME_API_ADDRESS" desc:"address of the API and the page for users of the cluster, with tokens; default: none"`
	APITLS      string `envconfig:"REHOME_API_TLS" desc:"off, self-signed, or files; default: files if they are set, otherwise off"`
	APICertFile string `envconfig:"REHOME_API_CERT_FILE" desc:"certificate file for the API; without TLS only a loopback address is allowed"`
	APIKeyFile  string `envconfig:"REHOME_API_KEY_FILE" desc:"key file of that certificate"`

	Maintenance bool `envconfig:"REHOME_MAINTENANCE" default:"true" desc:"maintain nodes in rehome run; if false, it cordons and drains no node"`

	Namespace      string        `envconfig:"REHOME_NAMESPACE" desc:"namespace of this process, and of the pods that commands connect to; default: the pod's namespace, or all outside of the cluster"`
	LeaseNamespace string        `envconfig:"REHOME_LEASE_NAMESPACE" default:"kube-system" desc:"namespace of the leases of all installations in the cluster"`
	LeaseDuration  time.Duration `envconfig:"REHOME_LEASE_DURATION" default:"15s" desc:"how long standbys wait for a lost leader"`

	Resync   time.Duration `envconfig:"REHOME_RESYNC" default:"30m" desc:"interval of full evaluations; rehome setup keeps scopes for two intervals"`
	Settle   time.Duration `envconfig:"REHOME_SETTLE" default:"10ms" desc:"how long an evaluation waits for related changes"`
	Parallel int           `envconfig:"REHOME_PARALLEL" default:"64" desc:"number of parallel evictions"`

	ServeBytes    int64 `envconfig:"REHOME_SERVE_BYTES" default:"8388608" desc:"largest request to rehome serve in bytes, also after decompression"`
	ServeParallel int   `envconfig:"REHOME_SERVE_PARALLEL" default:"32" desc:"number of parallel requests to rehome serve"`

	LogLevel  slog.Level `envconfig:"REHOME_LOG_LEVEL" default:"INFO" desc:"DEBUG, INFO, WARN, or ERROR"`
	LogFormat string     `envconfig:"REHOME_LOG_FORMAT" default:"text" desc:"text or json"`
}

// Read reads the environment.
func Read() (Settings, error) {
	var s Settings
	if err := envconfig.Process("", &s); err != nil {
		return s, unreadable(err)
	}
	return s, nil
}

// unreadable names the variable and the format that it needs.
func unreadable(err error) error {
	var parse *envconfig.ParseError
	if !errors.As(err, &parse) {
		return fmt.Errorf("environment: %w", err)
	}
	want := parse.TypeName
	switch want {
	case "time.Duration":
		want = "a duration such as 90s or 1h"
	case "int", "int64":
		want = "a whole number"
	case "bool":
		want = "true or false"
	case "slog.Level":
		want = "DEBUG, INFO, WARN, or ERROR"
	}
	return fmt.Errorf("%s: want %s, got %q", parse.KeyName, want, parse.Value)
}

// shortestHistory exceeds the longest deadline of a request, 24 hours: without the receipt in the history, it is not open.
const shortestHistory = 25 * time.Hour

// Check returns an error for each invalid setting, with the name of the variable.
func (s Settings) Check() error { //nolint:gocyclo // a flat list of checks
	if err := errors.Join(s.checkListen(), s.checkServing()); err != nil {
		return err
	}
	switch {
	case s.LogFormat != "text" && s.LogFormat != "json":
		return fmt.Errorf("REHOME_LOG_FORMAT: want text or json, got %q", s.LogFormat)
	case s.NATSReplicas != 1 && s.NATSReplicas != 3 && s.NATSReplicas != 5:
		return fmt.Errorf("REHOME_NATS_REPLICAS: want 1, 3 or 5, got %d", s.NATSReplicas)
	case s.LeaseDuration < 3*time.Second:
		return fmt.Errorf("REHOME_LEASE_DURATION: want at least 3s, got %v", s.LeaseDuration)
	case s.StoreReserve < 0:
		return fmt.Errorf("REHOME_STORE_RESERVE: want at least 0, got %d", s.StoreReserve)
	case s.Parallel < 1:
		return fmt.Errorf("REHOME_PARALLEL: want at least 1, got %d", s.Parallel)
	case s.ServeBytes < 1:
		return fmt.Errorf("REHOME_SERVE_BYTES: want at least 1, got %d", s.ServeBytes)
	case s.ServeParallel < 1:
		return fmt.Errorf("REHOME_SERVE_PARALLEL: want at least 1, got %d", s.ServeParallel)
	case s.History < shortestHistory:
		return fmt.Errorf("REHOME_HISTORY: want at least %v, because an open request needs its receipt for a day, got %v",
			shortestHistory, s.History)
	case s.Resync < time.Minute:
		return fmt.Errorf("REHOME_RESYNC: want at least 1m, got %v", s.Resync)
	case s.Cluster == "" || strings.ContainsAny(s.Cluster, " /?#"):
		return fmt.Errorf("REHOME_CLUSTER: want a name that can stand in a URI, got %q", s.Cluster)
	case len(validation.IsDNS1123Label(s.Installation)) > 0:
		return fmt.Errorf("REHOME_INSTALLATION: want lower-case letters, digits, and hyphens, at most 63, got %q", s.Installation)
	case bus.Prefix(s.BusPrefix).Check() != nil:
		return fmt.Errorf("REHOME_BUS_PREFIX: %w", bus.Prefix(s.BusPrefix).Check())
	case s.LeaseNamespace == "":
		return fmt.Errorf("REHOME_LEASE_NAMESPACE: want the name of a namespace, got nothing")
	}
	return nil
}

// checkListen finds settings that are missing for the embedded server to listen.
func (s Settings) checkListen() error {
	needed := []struct{ variable, value, what string }{
		{"REHOME_LISTEN_CERT_FILE", s.ListenCert, "the server's certificate"},
		{"REHOME_LISTEN_KEY_FILE", s.ListenKey, "the key of the server's certificate"},
		{"REHOME_LISTEN_AUTH", s.ListenAuth, "the directory that rehome auth init wrote"},
	}
	for _, n := range needed {
		if s.Listen != "" && n.value == "" {
			return fmt.Errorf("%s: want %s, since REHOME_LISTEN is set, got nothing", n.variable, n.what)
		}
		if s.Listen == "" && n.value != "" {
			return fmt.Errorf("%s: want it with REHOME_LISTEN, got no REHOME_LISTEN", n.variable)
		}
	}
	if s.Listen != "" && s.NATSURL != "" {
		return fmt.Errorf("REHOME_LISTEN: want it without REHOME_NATS_URL: an external server has its own address")
	}
	return nil
}

// Logger writes to w.
func (s Settings) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Source returns the CloudEvents source of a component.
func (s Settings) Source(component string) string { return "/clusters/" + s.Cluster + "/" + component }

func (s Settings) storeDir() (string, error) {
	if s.StoreDir != "" {
		return s.StoreDir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("REHOME_STORE_DIR is not set and there is no cache directory: %w", err)
	}
	return filepath.Join(cache, "rehome"), nil
}

func (s Settings) socket() (string, error) {
	dir, err := s.storeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "bus.sock"), nil
}

const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// OwnNamespace returns the namespace of this process, or "" outside of the cluster.
func (s Settings) OwnNamespace() string {
	if s.Namespace != "" {
		return s.Namespace
	}
	b, err := os.ReadFile(podNamespace)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// LeaseName returns the name of a lease in this installation.
func (s Settings) LeaseName(lease string) string {
	return s.Installation + strings.TrimPrefix(lease, "rehome")
}

// Version and revision, which is the commit, are set by the linker.
var Version, revision = "development", "" //nolint:gochecknoglobals // the linker sets them

// Commit returns the commit of the build: set by the linker or, after `go build` or `go install`, found by Go. Empty
// means unknown.
func Commit() string {
	if revision != "" {
		return revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
