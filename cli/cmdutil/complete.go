package cmdutil

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/app/settings"
)

// completeWithin limits the wait for the API server after the tab key.
const completeWithin = 2 * time.Second

type completion = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

func complete(c *cobra.Command, flag string, values func() []string) {
	Must(c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	}))
}

// Must panics for an error of the program: a completion for a flag that does not exist.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// CompleteValues completes a flag with fixed words.
func CompleteValues(c *cobra.Command, flag string, values ...string) {
	complete(c, flag, func() []string { return values })
}

// CompleteNamespaces completes -n with the namespaces of the cluster.
func CompleteNamespaces(c *cobra.Command, f *Flags) {
	complete(c, "namespace", func() []string { return names(f.Settings, "Namespace", "") })
}

// CompleteResources completes TYPE NAME with these types, and the names of pods, nodes, and workloads of the cluster.
func CompleteResources(f *Flags, namespace func() (string, error), types ...string) completion {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return types, cobra.ShellCompDirectiveNoFileComp
		}
		kind, _, err := Resources(args)
		in := ""
		if err == nil && kind != "Node" {
			in, err = namespace()
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names(f.Settings, kind, in), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNodes completes the name of one node.
func CompleteNodes(f *Flags) completion {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(f.Settings, "Node", ""), cobra.ShellCompDirectiveNoFileComp
	}
}

// names lists the names of the objects of a kind. Without a response of the API server it returns none.
func names(s settings.Settings, kind, namespace string) (all []string) {
	client, err := settings.NewDynamicClient(s)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
	defer cancel()
	resource := schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(kind) + "s"}
	for _, k := range kinds {
		if k.kind == kind {
			resource.Group = k.group
		}
	}
	list, err := client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for _, o := range list.Items {
		all = append(all, o.GetName())
	}
	return all
}
