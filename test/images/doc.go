// Package images tests the images of `make images`, and docker-compose.yaml, which runs them. It runs both if a container engine
// is available, and checks their content in any case.
package images
