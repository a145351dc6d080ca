// Package supervisor keeps a set of child processes alive exactly as long as
// somebody wants them, and no longer.
//
// A supervisor is a small process of its own. The process that launches it holds
// a pipe to it open; whichever way that process ends, SIGKILL included, the pipe
// reaches its end, and the supervisor kills its children, removes its directory
// and exits. A detached supervisor lives until SIGTERM instead. Should the
// supervisor itself be killed, the kernel kills the children (Linux only).
//
// # Usage
//
//	s, err := supervisor.Launch(binary, supervisor.Config{Dir: dir, Log: log})
//	...
//	err = s.Start(supervisor.Process{Name: "etcd", Path: path, Args: args, Log: log})
//	...
//	err = s.Close() // children dead, directory gone
//
// The children are killed, never asked to finish: what they hold is in the
// directory, and the directory is thrown away.
//
// # Concurrency
//
// All methods of [Supervisor] may be called from several goroutines. Commands are
// carried out one after the other.
//
// The package imports the standard library alone, so that its binary builds in a
// second and does not change when the project's dependencies do.
package supervisor
