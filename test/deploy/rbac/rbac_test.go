package rbac

import "testing"

// TestEachRightIsNeeded shares one control plane among its parts.
func TestEachRightIsNeeded(t *testing.T) {
	s := newStage(t)
	t.Run("each rule names what it allows", func(t *testing.T) { named(t, s) })
	t.Run("functions and dispatcher have no rights and no token", func(t *testing.T) { rightless(t, s) })
	t.Run("the rights are enough for everything, and everything uses them", func(t *testing.T) { enough(t, s) })
	t.Run("all roles in one process have the rights of all and no more", func(t *testing.T) { allInOne(t, s) })
	t.Run("a stolen token of the actuator changes nothing else", func(t *testing.T) { stolen(t, s) })
	t.Run("a_stolen_token_ends_with_its_account", func(t *testing.T) { revoked(t, s) })
	t.Run("without any one of them something fails, and says which", func(t *testing.T) { eachRemoved(t, s) })
}
