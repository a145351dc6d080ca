// Package images tests what Rehome is delivered in: the images that `make images` builds, and docker-compose.yaml, which
// runs them. Where a container engine answers, both are tried in it; where none is, what they say is checked all the same.
package images
