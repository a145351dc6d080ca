package fit

import "reflect"

// Same says whether two clusters have the same state, sums and indexes included.
func Same(a, b *Cluster) bool { return reflect.DeepEqual(a, b) }
