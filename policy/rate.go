package policy

// Rate is how fast pods are moved.
type Rate struct {
	// EvictionsPerSecond is the long-term mean, greater than 0.
	EvictionsPerSecond float64 `json:"evictionsPerSecond"`
	// Burst is how many may be moved at once after a pause, at least 1.
	Burst int `json:"burst"`
	// PerNamespace is a rate that holds for each namespace by itself. nil: none.
	PerNamespace *NamespaceRate `json:"perNamespace,omitzero"`
}

// NamespaceRate is how fast pods of one namespace are moved. Its fields are those of [Rate].
type NamespaceRate struct {
	EvictionsPerSecond float64 `json:"evictionsPerSecond"`
	Burst              int     `json:"burst"`
}

// DefaultRate is what a file that says nothing gets. Ten a second moves all pods of a full node, 110 by default in the
// kubelet, in about ten seconds, and is far below what an API server answers in parallel.
func DefaultRate() Rate { return Rate{EvictionsPerSecond: 10, Burst: 10} }

// setDefaults makes what the file does not say about a namespace that of [DefaultRate].
func (r *NamespaceRate) setDefaults() {
	all := DefaultRate()
	*r = NamespaceRate{EvictionsPerSecond: all.EvictionsPerSecond, Burst: all.Burst}
}

// Validate says what is wrong with the rate; each error in it is a *[FieldError].
func (r Rate) Validate() error {
	var found Findings
	found.Join("", NamespaceRate{r.EvictionsPerSecond, r.Burst}.Validate())
	if r.PerNamespace != nil {
		found.Join("perNamespace", r.PerNamespace.Validate())
	}
	return found.Err()
}

// Validate says what is wrong with the rate; each error in it is a *[FieldError].
func (r NamespaceRate) Validate() error {
	var found Findings
	if !(r.EvictionsPerSecond > 0) {
		found.Add("evictionsPerSecond", r.EvictionsPerSecond, "must be greater than 0", "")
	}
	if r.Burst < 1 {
		found.Add("burst", r.Burst, "must be at least 1", "")
	}
	return found.Err()
}
