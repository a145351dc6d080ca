package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// AddKinds makes the API server serve the kinds of Rehome from deploy/crds, and returns when it does. It also creates the
// admission policy of that folder, which takes effect a few hundred milliseconds later. A second call is harmless.
func (c *Cluster) AddKinds(ctx context.Context) error {
	root, err := binaries.Root()
	if err != nil {
		return fmt.Errorf("add kinds: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy/crds/*.yaml"))
	if err != nil {
		return fmt.Errorf("add kinds: %w", err)
	}
	for _, file := range files {
		if err := c.applyFile(ctx, file); err != nil {
			return fmt.Errorf("add kinds: %s: %w", filepath.Base(file), err)
		}
	}
	for _, resource := range []string{v1alpha1.NodeMaintenances, v1alpha1.DrainRules, v1alpha1.ClusterDrainRules} {
		if err := c.waitServed(ctx, v1alpha1.GroupVersion().String(), resource); err != nil {
			return fmt.Errorf("add kinds: %s: %w", resource, err)
		}
	}
	return nil
}

// AddForeignKinds makes the API server serve kinds of other projects: paths of CustomResourceDefinitions, by their module. The
// go.mod of test/tools/kinds pins the modules.
func (c *Cluster) AddForeignKinds(ctx context.Context, definitions map[string][]string) error {
	root, err := binaries.Root()
	if err != nil {
		return fmt.Errorf("add kinds: %w", err)
	}
	for module, paths := range definitions {
		download := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
		download.Dir = filepath.Join(root, "test/tools/kinds")
		out, err := download.Output()
		if err != nil {
			return fmt.Errorf("add kinds: module %s: %w\n%s", module, err, out)
		}
		var at struct{ Dir string }
		if err := json.Unmarshal(out, &at); err != nil {
			return fmt.Errorf("add kinds: module %s: %w", module, err)
		}
		for _, path := range paths {
			if err := c.applyFile(ctx, filepath.Join(at.Dir, path)); err != nil {
				return fmt.Errorf("add kinds: %s of module %s: %w", path, module, err)
			}
		}
	}
	return nil
}

// AddEvictionRequests makes the API server serve the kinds of lifecycle.k8s.io/v1alpha1, and returns when it does. No released
// control plane serves them, so the definitions follow the Go types of k8s.io/api. A second call is harmless.
func (c *Cluster) AddEvictionRequests(ctx context.Context) error {
	root, err := binaries.Root()
	if err != nil {
		return fmt.Errorf("add eviction requests: %w", err)
	}
	for _, resource := range []string{"evictionrequests", "evictions"} {
		file := filepath.Join(root, "actuator/move/evictionrequest/testdata", resource+".yaml")
		err := c.applyFile(ctx, file)
		if err == nil {
			err = c.waitServed(ctx, "lifecycle.k8s.io/v1alpha1", resource)
		}
		if err != nil {
			return fmt.Errorf("add eviction requests: %s: %w", resource, err)
		}
	}
	return nil
}

// applyFile applies every object of a YAML file.
func (c *Cluster) applyFile(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object map[string]any
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if object == nil { // an empty document
			continue
		}
		if err := c.apply(ctx, object); err != nil {
			return err
		}
	}
}

// apply applies a cluster-scoped object.
func (c *Cluster) apply(ctx context.Context, object map[string]any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return err
	}
	path := "/apis/" + head.APIVersion + "/" + plural(head.Kind) + "/" + head.Metadata.Name
	err = c.client.Discovery().RESTClient().Patch("application/apply-patch+yaml").AbsPath(path).
		Param("fieldManager", "test").Param("force", "true").Param("fieldValidation", "Strict").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", head.Kind, head.Metadata.Name, err)
	}
	return nil
}

// plural returns the resource of a kind whose name is regular English.
func plural(kind string) string {
	resource := strings.ToLower(kind)
	if stem, ends := strings.CutSuffix(resource, "y"); ends {
		return stem + "ies"
	}
	return resource + "s"
}

// waitServed waits until the API server lists a new kind of objects.
func (c *Cluster) waitServed(ctx context.Context, groupVersion, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := c.client.Discovery().RESTClient().Get().AbsPath("/apis/" + groupVersion + "/" + resource).Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not served after a minute: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
