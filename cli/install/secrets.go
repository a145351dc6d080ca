package install

import (
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/rehome-dev/rehome/bus/credentials"
)

// secretPrefix is the default prefix of the names of all Secrets, before a hyphen. It is also the name of the servers in the
// manifests.
const secretPrefix = "rehome-nats"

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

// printSecrets prints the Secrets of the servers and of each participant.
func printSecrets(w io.Writer, bundles []credentials.Bundle, namespace, prefix string) error {
	var yaml printers.YAMLPrinter
	for _, b := range bundles {
		if err := yaml.PrintObj(&corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: secretName(prefix, b.Name), Namespace: namespace, Labels: map[string]string{
				"app.kubernetes.io/name": "rehome", "app.kubernetes.io/part-of": "rehome", "app.kubernetes.io/component": "nats",
			}},
			Type: corev1.SecretTypeOpaque, Data: b.Files,
		}, w); err != nil {
			return fmt.Errorf("secret of %s: %w", b.Name, err)
		}
	}
	return nil
}

// secretName returns the name of the Secret of a participant. Kubernetes names have no capitals, and fewer other characters than
// the names of strategies and senders.
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
