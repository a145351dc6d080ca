// Package objects reads Kubernetes objects from text: what kubectl prints, or somebody wrote by hand.
//
// A text is any mixture of YAML documents and JSON. Each is one object or a list of objects. What a real cluster prints is
// large, so the plain block style that kubectl writes is read by a reader of its own, and everything else by the YAML
// library: the two agree on whatever both can read.
//
// Nothing here knows what the objects are for.
package objects
