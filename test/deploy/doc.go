// Package deploy tests the manifests in deploy/kustomize: what every part of them says about the others, that a real API server
// takes each way of installing with the restricted level of Pod Security enforced and its controllers make all pods of it, that
// nothing stays when it is removed, and that the commands of docs/install.md work as they stand there.
//
// Pods run as kwok runs them, which starts no container. Where the page looks into a pod, the program is started as the pod
// would be: with its arguments, environment and files, and the token of its service account.
package deploy
