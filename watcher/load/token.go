package load

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/policy"
)

const (
	// account is the service account directory in a pod.
	account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	// tokenKey is the key of the token in a Secret.
	tokenKey = "prometheusAuthToken"
	// tokenAge is how long a token is cached.
	tokenAge = time.Minute
)

// Token returns a bearer token. Empty means that requests have none.
type Token func(ctx context.Context) (string, error)

// TokenFor returns the token for a server: from the Secret that it names, or of the service account.
func TokenFor(client kubernetes.Interface, server policy.Prometheus) Token {
	if secret := server.TokenSecret(); secret != nil {
		return secretToken(client, *secret)
	}
	return accountToken
}

// secretToken reads the token from a Secret. A Secret without the key is an error.
func secretToken(client kubernetes.Interface, ref policy.SecretRef) Token {
	return func(ctx context.Context) (string, error) {
		secret, err := client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("token for Prometheus: secret %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		token := strings.TrimSpace(string(secret.Data[tokenKey]))
		if token == "" {
			return "", fmt.Errorf("token for Prometheus: secret %s/%s has no key %s", ref.Namespace, ref.Name, tokenKey)
		}
		return token, nil
	}
}

// accountToken reads the service account token of this pod. It is empty outside of a pod.
func accountToken(context.Context) (string, error) {
	token, err := os.ReadFile(account + "token")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("token for Prometheus: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}
