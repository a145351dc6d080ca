// Package crds tests what the API server itself makes of the kinds in schemas/v1alpha1: what it refuses and in which words, what
// it fills in, what kubectl shows, and who may say what. It is asked with the files of deploy/crds as they are.
package crds
