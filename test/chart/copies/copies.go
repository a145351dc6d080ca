package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	yaml "go.yaml.in/yaml/v3"
)

// header begins every file that is not an exact copy.
const header = "# Made by make generate from deploy/kustomize/rbac/%s, where it is to be changed.\n"

// copies returns the files of the chart by their names, from the folder deploy.
func copies(deploy string) (map[string][]byte, error) {
	files := map[string][]byte{}
	exact := map[string]string{
		"policy.yaml":               "policy.yaml",
		"monitoring/alerts.yaml":    "kustomize/components/monitoring/alerts.yaml",
		"monitoring/dashboard.json": "kustomize/components/monitoring/dashboard.json",
		"nats/nats.conf":            "kustomize/components/nats/nats.conf",
	}
	kinds, err := filepath.Glob(filepath.Join(deploy, "crds", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range kinds {
		if name := filepath.Base(path); name != "kustomization.yaml" {
			exact["crds/"+name] = "crds/" + name
		}
	}
	for name, source := range exact {
		if files[name], err = os.ReadFile(filepath.Join(deploy, filepath.FromSlash(source))); err != nil {
			return nil, err
		}
	}
	for name, folder := range map[string]string{
		"watcher": "watcher/rules", "actuator": "actuator/rules", "maintenance": "maintenance/rules",
		"requests": "requests", "metrics-api": "metrics-api", "people": "people", "setup": "setup",
	} {
		if files["rbac/"+name+".yaml"], err = rules(filepath.Join(deploy, "kustomize", "rbac", filepath.FromSlash(folder)), folder); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// rule is one of RBAC, with its keys in the order in which people write them.
type rule struct {
	APIGroups       []string `yaml:"apiGroups,omitempty,flow"`
	Resources       []string `yaml:"resources,omitempty,flow"`
	ResourceNames   []string `yaml:"resourceNames,omitempty,flow"`
	NonResourceURLs []string `yaml:"nonResourceURLs,omitempty,flow"`
	Verbs           []string `yaml:"verbs,flow"`
}

// ruleSet is what roles may do, by their names: in the cluster, and in the namespace of the leases.
type ruleSet struct {
	Cluster   map[string][]rule `yaml:"cluster"`
	Namespace map[string][]rule `yaml:"namespace"`
}

// rules collects the rules of all ClusterRoles and Roles in a folder.
func rules(folder, source string) ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	all := ruleSet{Cluster: map[string][]rule{}, Namespace: map[string][]rule{}}
	for _, path := range paths {
		if err := all.add(path); err != nil {
			return nil, err
		}
	}
	if len(all.Cluster)+len(all.Namespace) == 0 {
		return nil, fmt.Errorf("%s: there are no rules", folder)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, header, source)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(all), e.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return b.Bytes(), nil
}

// add adds the rules of one file. Comments are left behind.
func (r ruleSet) add(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
			Rules []rule `yaml:"rules"`
		}
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		switch object.Kind {
		case "ClusterRole":
			r.Cluster[object.Metadata.Name] = object.Rules
		case "Role":
			r.Namespace[object.Metadata.Name] = object.Rules
		}
	}
}
