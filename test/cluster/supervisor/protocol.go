package supervisor

// Process is a child to run.
type Process struct {
	// Name identifies the child in Stop and in errors. It is unique among the running children.
	Name string `json:"name"`
	// Path is the executable; Args are its arguments, without the name.
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	// Env is the complete environment. The child inherits nothing.
	Env []string `json:"env,omitempty"`
	// Log is the file for standard output and standard error, in append mode.
	Log string `json:"log"`
}

// Exit is the unexpected end of a child.
type Exit struct {
	Name string `json:"name"`
	// State is the final state in the words of [os.ProcessState], such as "exit status 1".
	State string `json:"state"`
	// Log is the file with its last output.
	Log string `json:"log"`
}

// command is one line from the launching process. Exactly one field is set.
type command struct {
	Start  *Process `json:"start,omitempty"`
	Stop   string   `json:"stop,omitempty"`
	Detach bool     `json:"detach,omitempty"`
}

// message is one line to the launching process: the reply to a command, in the order of the commands, or the exit of a child.
type message struct {
	Reply *reply `json:"reply,omitempty"`
	Exit  *Exit  `json:"exit,omitempty"`
}

// reply is the result of a command. Error is empty if it succeeded.
type reply struct {
	Pid   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}
