package rbac

import "testing"

// TestRoleRights shares one control plane among its parts.
func TestRoleRights(t *testing.T) {
	s := newStage(t)
	t.Run("folders", tried)
	t.Run("no_wildcards", func(t *testing.T) { named(t, s) })
	t.Run("functions_and_dispatcher_have_none", func(t *testing.T) { rightless(t, s) })
	t.Run("enough_and_all_used", func(t *testing.T) { enough(t, s) })
	t.Run("one_process", func(t *testing.T) { allInOne(t, s) })
	t.Run("stolen_token", func(t *testing.T) { stolen(t, s) })
	t.Run("revoked_token", func(t *testing.T) { revoked(t, s) })
	t.Run("each_removed", func(t *testing.T) { eachRemoved(t, s) })
}
