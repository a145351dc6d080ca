package install

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/bus/credentials"
)

// secretPrefix is the default prefix of the names of all Secrets, before a hyphen. It is also the name of the servers in the
// manifests.
const secretPrefix = "rehome-nats"

// secret is a Secret in YAML.
type secret struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   secretMetadata    `yaml:"metadata"`
	Type       string            `yaml:"type"`
	Data       map[string]string `yaml:"data"`
}

type secretMetadata struct {
	Name      string            `yaml:"name"`
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels"`
}

// checkSecrets checks names before any file is written.
func checkSecrets(dir, namespace, prefix string, c credentials.Config) error {
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return fmt.Errorf("want the name of a namespace such as rehome, got %q", namespace)
	}
	if len(validation.IsDNS1123Subdomain(prefix)) > 0 {
		return fmt.Errorf("--prefix: want the beginning of a name of a Secret, such as %s, got %q", secretPrefix, prefix)
	}
	of := map[string]string{}
	for _, p := range c.Participants() {
		name := secretName(prefix, p.String())
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("%s %s: want a name that can be the end of the name of a Secret, got %q: %s",
				p.Role, p.Name, name, strings.Join(problems, ", "))
		}
		if other, taken := of[name]; taken {
			return fmt.Errorf("%s and %s: want names that differ in letters and digits, got Secret %s for both",
				other, p, name)
		}
		of[name] = p.String()
	}
	err := credentials.CheckBundles(dir, c)
	if errors.Is(err, credentials.ErrNoCertificates) {
		service := prefix + "." + namespace + ".svc"
		return fmt.Errorf("%w: want those, or --tls with the names of the servers, such as --tls '%s,*.%s'",
			err, service, service)
	}
	return err
}

// secretsOf returns the Secrets of the servers and of each participant.
func secretsOf(bundles []credentials.Bundle, namespace, prefix string) []secret {
	var all []secret
	for _, b := range bundles {
		data := make(map[string]string, len(b.Files))
		for name, text := range b.Files {
			data[name] = base64.StdEncoding.EncodeToString(text)
		}
		all = append(all, secret{"v1", "Secret", secretMetadata{secretName(prefix, b.Name), namespace, map[string]string{
			"app.kubernetes.io/name": "rehome", "app.kubernetes.io/part-of": "rehome", "app.kubernetes.io/component": "nats",
		}}, "Opaque", data})
	}
	return all
}

// secretName returns the name of the Secret of a participant. Kubernetes names have no capitals, and fewer other characters than the
// names of strategies and senders.
func secretName(prefix, participant string) string {
	return prefix + "-" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '-'
	}, participant)
}

func printSecrets(w io.Writer, secrets []secret) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	for _, s := range secrets {
		if err := e.Encode(s); err != nil {
			return fmt.Errorf("secret %s: %w", s.Metadata.Name, err)
		}
	}
	return e.Close()
}
