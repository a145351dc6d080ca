package fit_test

import (
	"fmt"

	"github.com/rehome-dev/rehome/fit"
)

func Example() {
	cluster := fit.New()
	for _, name := range []string{"node-1", "node-2"} {
		cluster.Set(node(name)) // 4 CPUs
	}
	running := pod("web-1", on("node-1"), requests("cpu", "3"))
	cluster.Set(running)
	waiting := pod("db-1", requests("cpu", "2"))

	fmt.Println(cluster.Ask(waiting).On("node-1"))
	fmt.Println(cluster.Ask(running).Elsewhere(fit.Search{}).Node)

	cluster.Reserve(running, "node-2")
	fmt.Println(cluster.Ask(waiting).On("node-2"))
	// Output:
	// resource: cpu
	// node-2
	// resource: cpu
}
