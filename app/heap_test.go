package app

import (
	"context"
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, checks := time.Now(), 0
		answers := []bool{false, true, true, false, true, true, true}
		got := holds(t.Context(), func() bool { checks++; return answers[checks-1] }, 3)
		if took := time.Since(began); !got || took != 7*memoryCheck {
			t.Errorf("got %t after %v, want true after %v", got, took, 7*memoryCheck)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*memoryCheck)
		defer cancel()
		if holds(ctx, func() bool { return false }, 1) {
			t.Error("a condition that was never true holds when the context ends")
		}
	})
}

func TestSetGCPercent(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "100")
	setGCPercent()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("with GOGC=100 it is %d", got)
	}
	os.Unsetenv("GOGC") // t.Setenv restores it
	setGCPercent()
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("without GOGC it is %d, want %d", got, gcPercent)
	}
}
