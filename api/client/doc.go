// Package client calls the HTTP API of Rehome from the command line.
//
//	Client ──HTTP──▶ the network address, with a bearer token
//	   └── PodDialer ──▶ API server ──▶ kubelet ──▶ the loopback address in the pod, as kubectl port-forward does
//
//	client.go   Client: state, explanations, requests
//	stream.go   events as an iterator, which continues after a lost connection
//	problem.go  errors of the API
//	dial.go     PodDialer: connections to a port of a pod, without a local port
//	find.go     FindPod: the pod that serves the API
package client
