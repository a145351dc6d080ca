//go:build !linux

package main

import (
	"errors"
	"time"
)

var errNoProc = errors.New("processor time and memory are read from /proc, which only Linux has: " +
	"only the parts decisions and dispatcher run elsewhere")

func processorTime(...int) (time.Duration, error) { return 0, errNoProc }

type machine struct{}

func watchMachine() (machine, error) { return machine{}, errNoProc }

func (machine) busy() float64 { return 0 }
