package images

import (
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// The parts of a Compose project that these tests look at.
type (
	project struct {
		Name     string
		Services map[string]service
		Volumes  map[string]any
	}
	service struct {
		Image, User, Restart string
		Entrypoint, Command  []string
		Environment          map[string]string
		MemLimit             string   `json:"mem_limit"`
		NetworkMode          string   `json:"network_mode"`
		ReadOnly             bool     `json:"read_only"`
		CapDrop              []string `json:"cap_drop"`
		SecurityOpt          []string `json:"security_opt"`
		Privileged           bool
		Ports                []any
		Volumes              []mount
		DependsOn            map[string]struct{ Condition string } `json:"depends_on"`
		Healthcheck          *struct {
			Test    []string
			Retries int
		}
	}
	mount struct {
		Type, Source, Target string
		ReadOnly             bool `json:"read_only"`
		Bind                 struct {
			CreateHostPath bool `json:"create_host_path"`
		}
	}
)

// compose reads docker-compose.yaml with the parser of Compose, and with variables.
func compose(t *testing.T, variables ...string) project {
	t.Helper()
	root := repository(t)
	c := exec.CommandContext(t.Context(), filepath.Join(root, ".build/tools/compose"), filepath.Join(root, "docker-compose.yaml"))
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(knobs, name) {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, variables...)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s; make .build/tools/compose builds what reads it", err, complaint(err))
	}
	return decode[project](t, out)
}

// complaint returns the standard error of a failed program.
func complaint(err error) string {
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(failed.Stderr)
	}
	return ""
}

// knobs are the variables that docker-compose.yaml asks for.
var knobs = []string{
	"GRAFANA_IMAGE", "GRAFANA_PASSWORD", "GRAFANA_PORT", "KUBECONFIG", "NATS_IMAGE", "PROMETHEUS_IMAGE", "PROMETHEUS_PORT",
	"REHOME_DRY_RUN", "REHOME_IMAGE", "REHOME_POLICY_DIR", "REHOME_USER",
}

// rehomeVersion is the one of manifests until there is a release.
const rehomeVersion = "v0.1.0"

func TestComposeServicesAndImages(t *testing.T) {
	got := map[string]string{}
	for name, s := range compose(t).Services {
		got[name] = s.Image
	}
	rehome, nats := "ghcr.io/rehome-dev/rehome:"+rehomeVersion, "nats:"+natsVersion(t)+"-alpine"
	want := map[string]string{
		"keys": rehome, "setup": rehome, "watcher": rehome, "actuator": rehome, "maintenance": rehome, "functions": rehome, "dispatcher": rehome,
		"nats-1": nats, "nats-2": nats, "nats-3": nats,
		"prometheus": "prom/prometheus:" + prometheusVersion(t), "grafana": "grafana/grafana:12.1.1",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// natsVersion returns the version of the NATS server in go.mod, without v.
func natsVersion(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(required(t, ".", "github.com/nats-io/nats-server/v2"), "v")
}

// required returns the version of a module that the module in a directory of the repository is built with.
func required(t *testing.T, dir, module string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", module)
	c.Dir = filepath.Join(repository(t), dir)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err, complaint(err))
	}
	return strings.TrimSpace(string(out))
}

func TestConfigurableComposeImages(t *testing.T) {
	p := compose(t, "REHOME_IMAGE=own/rehome:1", "NATS_IMAGE=own/nats:1", "PROMETHEUS_IMAGE=own/prometheus:1", "GRAFANA_IMAGE=own/grafana:1")
	for name, s := range p.Services {
		if !strings.HasPrefix(s.Image, "own/") {
			t.Errorf("%s is still of %s", name, s.Image)
		}
	}
}

func TestComposeVariables(t *testing.T) {
	text := filetest.Read(t, filepath.Join(repository(t), "docker-compose.yaml"))
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\{?([A-Z_]+)`).FindAllStringSubmatch(withoutComments(text), -1) {
		found[m[1]] = true
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, knobs) {
		t.Errorf("got  %q\nwant %q", got, knobs)
	}
}

// withoutComments leaves the lines out that are comments.
func withoutComments(text string) string {
	return regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(text, "")
}

// awaited returns the services that others wait for until they have ended well: they run once, and have no health.
func awaited(p project) map[string]bool {
	once := map[string]bool{}
	for _, s := range p.Services {
		for name, d := range s.DependsOn {
			if d.Condition == "service_completed_successfully" {
				once[name] = true
			}
		}
	}
	return once
}

func TestRestrictedComposeServices(t *testing.T) {
	p := compose(t)
	for name, s := range p.Services {
		var wrong []string
		for what, bad := range map[string]bool{
			"its root can be written to":             !s.ReadOnly,
			"it runs as root, or without a user ID":  !regexp.MustCompile(`^[1-9][0-9]*:[0-9]+$`).MatchString(s.User),
			"it keeps capabilities":                  !slices.Equal(s.CapDrop, []string{"ALL"}),
			"it can gain privileges":                 !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.Privileged,
			"it is not in the network of the host":   s.NetworkMode != "host" || s.Ports != nil,
			"it does not come back":                  s.Restart != "unless-stopped" && !awaited(p)[name],
			"it runs once and is started again":      s.Restart == "unless-stopped" && awaited(p)[name],
			"it has no health check":                 s.Healthcheck == nil && !awaited(p)[name],
			"its health check needs a shell":         s.Healthcheck != nil && s.Healthcheck.Test[0] != "CMD",
			"it waits for a service without an eye":  waitsBlindly(s),
			"it mounts what can be made by accident": slices.ContainsFunc(s.Volumes, func(m mount) bool { return m.Bind.CreateHostPath }),
			"it may write into the repository":       slices.ContainsFunc(s.Volumes, func(m mount) bool { return m.Type == "bind" && !m.ReadOnly }),
		} {
			if bad {
				wrong = append(wrong, what)
			}
		}
		if len(wrong) > 0 {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

// waitsBlindly reports whether a service starts with another without asking how that one is.
func waitsBlindly(s service) bool {
	for _, d := range s.DependsOn {
		if d.Condition == "service_started" {
			return true
		}
	}
	return false
}

// TestComposeMemoryLimits has the bounds of test/deploy.TestMemoryLimits.
func TestComposeMemoryLimits(t *testing.T) {
	for name, s := range compose(t).Services {
		limit, err := strconv.ParseInt(s.MemLimit, 10, 64)
		goLimit, wrong := resource.ParseQuantity(strings.TrimSuffix(s.Environment["GOMEMLIMIT"], "B"))
		if err != nil || wrong != nil || limit == 0 || goLimit.Value() < limit*85/100 || goLimit.Value() > limit*90/100 {
			t.Errorf("%s: the limit of memory is %q, error %v; GOMEMLIMIT is %q, error %v; want about 90 %% of the limit",
				name, s.MemLimit, err, s.Environment["GOMEMLIMIT"], wrong)
		}
	}
}

func TestComposeMounts(t *testing.T) {
	kubeconfig := filetest.New(t, "kubeconfig", "")
	p := compose(t, "KUBECONFIG="+kubeconfig)
	for name, s := range p.Services {
		for _, m := range s.Volumes {
			if m.Type == "volume" {
				if _, ok := p.Volumes[m.Source]; !ok {
					t.Errorf("%s: there is no volume %s", name, m.Source)
				}
				continue
			}
			if _, err := os.Stat(m.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestComposeSettings(t *testing.T) {
	known := settingsOf(t)
	for name, s := range compose(t).Services {
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "REHOME_") && !slices.Contains(known, variable) {
				t.Errorf("%s: there is no setting %s", name, variable)
			}
		}
	}
}

// settingsOf returns the variables that the program lists.
func settingsOf(t *testing.T) (names []string) {
	t.Helper()
	dir, _ := built(t)
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "linux-amd64", "rehome"), "settings").Output()
	if err != nil {
		t.Fatal(err, complaint(err))
	}
	for line := range strings.Lines(string(out)) {
		if name := strings.Fields(line)[0]; strings.HasPrefix(name, "REHOME_") {
			names = append(names, name)
		}
	}
	return names
}

func TestComposeKeys(t *testing.T) {
	got := map[string]string{}
	for name, s := range compose(t).Services {
		if key := s.Environment["REHOME_NATS_NKEY_FILE"]; key != "" {
			got[name+" "+s.Command[0]] = key
		}
	}
	want := map[string]string{}
	for _, role := range []string{"setup", "watcher", "actuator", "maintenance", "functions", "dispatcher"} {
		want[role+" "+role] = "/etc/rehome/nats/" + role + ".nk"
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestComposePrometheusTargets(t *testing.T) {
	var config struct {
		Scrape []struct {
			Static []struct {
				Targets []string
				Labels  map[string]string
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	text, err := os.ReadFile(filepath.Join(repository(t), "deploy/compose/prometheus.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &config)
	}
	if err != nil || len(config.Scrape) != 1 {
		t.Fatal(err, config)
	}
	got, want := map[string]string{}, map[string]string{}
	for _, s := range config.Scrape[0].Static {
		got[s.Labels["component"]] = strings.Join(s.Targets, ",")
	}
	for name, s := range compose(t).Services {
		if address := s.Environment["REHOME_HTTP_ADDRESS"]; address != "" {
			want[name] = address
		}
	}
	if !reflect.DeepEqual(got, want) || len(got) != 5 {
		t.Errorf("asked is %v, served is %v", got, want)
	}
}

func TestLocalComposePorts(t *testing.T) {
	for name, s := range compose(t).Services {
		for variable, value := range s.Environment {
			if strings.HasSuffix(variable, "_ADDR") || strings.HasSuffix(variable, "_ADDRESS") {
				host, _, err := net.SplitHostPort(value)
				if err != nil {
					host = value
				}
				if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
					t.Errorf("%s: %s is %s", name, variable, value)
				}
			}
		}
		for _, word := range s.Command {
			if m := regexp.MustCompile(`listen-address=(.*):|^nats://(.*):`).FindStringSubmatch(word); m != nil && m[1]+m[2] != "127.0.0.1" {
				t.Errorf("%s: %s", name, word)
			}
		}
	}
	_, routes, _ := strings.Cut(filetest.Read(t, repository(t), "deploy/compose/nats.conf"), "\ncluster {")
	if !strings.Contains(routes, "verify_cert_and_check_known_urls: true") || strings.Contains(routes, "verify: true") {
		t.Error("any participant could join as a server")
	}
}

func TestComposeGrafana(t *testing.T) {
	var sources struct {
		Datasources []struct {
			URL, Type string
			Default   bool `yaml:"isDefault"`
		}
	}
	var boards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	for file, into := range map[string]any{"datasources.yaml": &sources, "dashboards.yaml": &boards} {
		text, err := os.ReadFile(filepath.Join(repository(t), "deploy/compose/grafana", file))
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		expect.Must(t, err)
	}
	p := compose(t, "PROMETHEUS_PORT=9999", "GRAFANA_PORT=3333")
	grafana, prometheus := p.Services["grafana"], p.Services["prometheus"]
	if len(sources.Datasources) != 1 || sources.Datasources[0].URL != "$PROMETHEUS_URL" || !sources.Datasources[0].Default ||
		grafana.Environment["PROMETHEUS_URL"] != "http://127.0.0.1:9999" ||
		!slices.Contains(prometheus.Command, "--web.listen-address=127.0.0.1:9999") ||
		!slices.Contains(prometheus.Healthcheck.Test, "http://127.0.0.1:9999/-/ready") ||
		!slices.Contains(grafana.Healthcheck.Test, "http://127.0.0.1:3333/api/health") {
		t.Errorf("they do not agree: %+v\n%+v\n%+v", sources, grafana, prometheus)
	}
	dashboard := slices.ContainsFunc(grafana.Volumes, func(m mount) bool {
		return m.Source == filepath.Join(repository(t), "deploy/kustomize/components/monitoring/dashboard.json") &&
			len(boards.Providers) == 1 && filepath.Dir(m.Target) == boards.Providers[0].Options.Path
	})
	if !dashboard {
		t.Errorf("no dashboard in %+v, where %+v looks", grafana.Volumes, boards)
	}
}
