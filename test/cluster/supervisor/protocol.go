package supervisor

// Process is a child for a supervisor to run.
type Process struct {
	// Name identifies the child to Stop, and in errors. It must be unique among
	// the running children.
	Name string `json:"name"`
	// Path is the executable; Args are its arguments, without the name.
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	// Env is the whole environment: nothing is inherited.
	Env []string `json:"env,omitempty"`
	// Log is the file for standard output and standard error, in append mode.
	Log string `json:"log"`
}

// Exit says that a child ended without having been asked to.
type Exit struct {
	Name string `json:"name"`
	// State is how it ended, in the words of [os.ProcessState]: "exit status 1".
	State string `json:"state"`
	// Log is the file that holds its last words.
	Log string `json:"log"`
}

// command is one line from the launching process. Exactly one field is set.
type command struct {
	Start  *Process `json:"start,omitempty"`
	Stop   string   `json:"stop,omitempty"`
	Detach bool     `json:"detach,omitempty"`
}

// message is one line to the launching process: the reply to a command, in the
// order of the commands, or the news of a child's end.
type message struct {
	Reply *reply `json:"reply,omitempty"`
	Exit  *Exit  `json:"exit,omitempty"`
}

// reply ends a command. Error is empty if the command was carried out.
type reply struct {
	Pid   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}
