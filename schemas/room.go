package schemas

import "bytes"

// leastPod is fewer bytes than a pod of any use has as JSON. It keeps data that only
// looks like pods from taking up memory.
const leastPod = 256

// reserver is a payload that lists pods. Each is large, so that a list that grows while it is read is copied for
// longer than it is read.
type reserver interface {
	// reserve makes room for n pods. With 0 it gives back the room for a list that did not come.
	reserve(n int)
}

// podsIn is about how many pods data lists.
func podsIn(data []byte) int {
	return min(bytes.Count(data, []byte(`{"pod":`)), len(data)/leastPod)
}

func reserve[T any](list *[]T, n int) {
	switch {
	case n > 0:
		*list = make([]T, 0, n)
	case len(*list) == 0 && cap(*list) > 0: // an empty list that came has no room, either
		*list = nil
	}
}

func (s *NodeScope) reserve(n int)     { reserve(&s.Pods, n) }
func (s *WorkloadScope) reserve(n int) { reserve(&s.Pods, n) }
func (s *DomainScope) reserve(n int)   { reserve(&s.Pods, n) }
func (s *UsageScope) reserve(n int)    { reserve(&s.Pods, n) }
func (s *RequestScope) reserve(n int)  { reserve(&s.Pods, n) }
