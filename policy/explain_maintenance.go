package policy

// maintenance says what a maintenance of nodes does otherwise than the profiles do. Nothing: nothing was written about it.
func (t *text) maintenance(m Maintenance) {
	if m.written() == nil {
		return
	}
	t.line(0, "When nodes are maintained,")
	if m.RestartAsUsual {
		t.item(1, "replacements come first only where they do otherwise")
	}
	if len(m.Protect) > 0 {
		t.item(1, "pods stay that are protected by "+listed(m.Protect))
	}
	for _, s := range m.Start {
		t.item(1, "another program begins it by the "+s.String()+" of a node")
	}
}
