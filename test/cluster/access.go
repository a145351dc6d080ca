package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// UserSubject returns the subject of a binding for a user.
func UserSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// AccountSubject returns the subject of a binding for a service account.
func AccountSubject(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// Grant gives a subject rights in a namespace, or in the whole cluster if the namespace is empty. The role and its binding have the
// name of the subject. The API server applies them a moment later: see [Cluster.WaitForRight].
func (c *Cluster) Grant(ctx context.Context, to rbacv1.Subject, namespace string, rules ...rbacv1.PolicyRule) error {
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: to.Name}
	meta := metav1.ObjectMeta{Name: to.Name}
	var err error
	if namespace == "" {
		role.Kind = "ClusterRole"
		_, err = c.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	} else {
		_, err = c.client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("grant %s rights: %w", to.Name, err)
	}
	return c.bind(ctx, to, namespace, role)
}

// Bind gives a subject the rights of a ClusterRole, like [Cluster.Grant].
func (c *Cluster) Bind(ctx context.Context, to rbacv1.Subject, namespace, clusterRole string) error {
	return c.bind(ctx, to, namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole})
}

func (c *Cluster) bind(ctx context.Context, to rbacv1.Subject, namespace string, role rbacv1.RoleRef) error {
	meta, subjects := metav1.ObjectMeta{Name: to.Name}, []rbacv1.Subject{to}
	var err error
	if namespace == "" {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}
		_, err = c.client.RbacV1().ClusterRoleBindings().Create(ctx, b, metav1.CreateOptions{})
	} else {
		b := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}
		_, err = c.client.RbacV1().RoleBindings(namespace).Create(ctx, b, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("bind %s to %s: %w", to.Name, role.Name, err)
	}
	return nil
}

// AccountKubeconfig writes a kubeconfig with a token of a service account, which is valid for an hour, and returns its path.
func (c *Cluster) AccountKubeconfig(ctx context.Context, dir, namespace, account string) (path string, err error) {
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	token, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s/%s: %w", namespace, account, err)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		return "", err
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &api.AuthInfo{Token: token.Status.Token}
	}
	path = filepath.Join(dir, namespace+"."+account+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// KubectlCommand returns a call of kubectl by the administrator.
func (c *Cluster) KubectlCommand(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig", c.Kubeconfig()}, arguments...)...)
}
