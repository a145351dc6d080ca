package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/csv"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// masters is the group with all rights, regardless of RBAC.
const masters = "system:masters"

// The users of every cluster. The audit log distinguishes them. ControllerManagerUser is the user of all controllers.
const (
	adminUser             = "admin"
	ControllerManagerUser = "system:kube-controller-manager"
	schedulerUser         = "system:kube-scheduler"
	kwokUser              = "kwok"
)

// certificateLife is longer than any cluster runs.
const certificateLife = 10 * 365 * 24 * time.Hour

// identities are the users of a cluster and the certificate of its API server.
type identities struct {
	host  string // URL of the API server.
	ca    []byte // Its certificate, in PEM.
	users map[string]User
}

// newIdentities writes keys, certificate and tokens to dir.
func newIdentities(dir, host string, extra []User) (identities, error) {
	id := identities{host: host, users: map[string]User{}}
	for _, name := range []string{adminUser, ControllerManagerUser, schedulerUser, kwokUser} {
		id.users[name] = User{Name: name, Groups: []string{masters}, Token: rand.Text()}
	}
	for _, user := range extra {
		if _, taken := id.users[user.Name]; taken || user.Name == "" {
			return identities{}, fmt.Errorf("user %q: the name is empty or taken", user.Name)
		}
		if user.Token == "" {
			user.Token = rand.Text()
		}
		id.users[user.Name] = user
	}
	if err := id.writeTokens(filepath.Join(dir, tokensFile)); err != nil {
		return identities{}, err
	}
	if _, err := writeKey(filepath.Join(dir, accountKeyFile)); err != nil {
		return identities{}, err
	}
	var err error
	id.ca, err = writeCertificate(filepath.Join(dir, certificateFile), filepath.Join(dir, certificateKeyFile))
	return id, err
}

// writeTokens writes the token file of the API server.
func (id identities) writeTokens(path string) error {
	var text strings.Builder
	table := csv.NewWriter(&text)
	for _, user := range id.users {
		row := []string{user.Token, user.Name, user.Name, strings.Join(user.Groups, ",")}
		if err := table.Write(row); err != nil {
			return fmt.Errorf("token of %s: %w", user.Name, err)
		}
	}
	table.Flush()
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// writeKey writes a new private key in PEM.
func writeKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return key, os.WriteFile(path, text, 0o600)
}

// writeCertificate writes a key and the self-signed certificate of the API server. It returns the certificate in PEM.
func writeCertificate(path, keyPath string) ([]byte, error) {
	key, err := writeKey(keyPath)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "rehome test cluster"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(certificateLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return text, os.WriteFile(path, text, 0o644)
}

// config returns a client configuration with a token and without throttling.
func (id identities) config(token string) *rest.Config {
	return &rest.Config{
		Host:            id.host,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: id.ca},
		QPS:             -1, // No limit in the client.
	}
}

// writeKubeconfig writes a kubeconfig for a user of the cluster.
func (id identities) writeKubeconfig(path, user string) error {
	const name = "rehome-test"
	kubeconfig := api.NewConfig()
	kubeconfig.Clusters[name] = &api.Cluster{Server: id.host, CertificateAuthorityData: id.ca}
	kubeconfig.AuthInfos[user] = &api.AuthInfo{Token: id.users[user].Token}
	kubeconfig.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return nil
}
