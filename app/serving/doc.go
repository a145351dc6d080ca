// Package serving says over what, and to whom, something is served over HTTP: with which certificate, with or without
// HTTP/2, and to everybody or to those alone who may get it by the rules of the cluster. What is served is not its business,
// but for the profiles of the process.
//
// # Certificates
//
// [SelfSigned] is one that the process made, for who wants no eavesdroppers and knows by other means whom it talks to. [Files]
// is one that somebody else looks after. Both are asked on every handshake, so a connection gets the certificate of its moment.
// TLS 1.2 is the least that is spoken.
//
// # Rights
//
// A [Guard] asks the API server whose bearer token it is, and whether that user may get the path as a nonResourceURL. It
// remembers the answers for ten seconds, as the components of Kubernetes do: a right that is taken away, or a token that
// expires, is good for that long.
package serving
