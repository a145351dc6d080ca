package faults

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// The leases whose sessions the judge needs.
const (
	actuatorLease = "rehome-actuator"
	watcherLease  = "rehome-watcher"
)

// session is one leader session of a process.
type session struct {
	role, lease string
	interval
}

var leaseLine = regexp.MustCompile(`^time=(\S+) .*msg="lease (held|lost|given up)" lease=(\S+)`)

// sessions reads the leader sessions so far from the logs of all processes, by their begin. A session ends when its process logs
// that, or when another process leads.
func (r *run) sessions() (list []session, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for log, role := range r.logs {
		for line := range strings.Lines(log.String()) {
			m := leaseLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			at, err := time.Parse(time.RFC3339, m[1])
			if err != nil {
				return nil, err
			}
			if m[2] == "held" {
				list = append(list, session{role, m[3], interval{at, endless}})
				continue
			}
			for i := range slices.Backward(list) {
				if s := &list[i]; s.role == role && s.lease == m[3] && s.to.Equal(endless) {
					s.to = at
					break
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b session) int { return a.from.Compare(b.from) })
	for i, s := range list {
		next := slices.IndexFunc(list[i+1:], func(o session) bool { return o.lease == s.lease })
		if next >= 0 && list[i+1+next].from.Before(s.to) {
			list[i].to = list[i+1+next].from
		}
	}
	return list, nil
}

// endless is the end of sessions that go on.
var endless = time.Unix(1<<40, 0)

// led reports whether one session of the actuator lasted from one time to another.
func (h *history) led(from, to time.Time) bool {
	return slices.ContainsFunc(h.sessions, func(s session) bool {
		return s.lease == actuatorLease && !s.from.After(from) && !s.to.Before(to)
	})
}

// began reports whether a session of a lease began between two times.
func (h *history) began(lease string, from, to time.Time) bool {
	return slices.ContainsFunc(h.sessions, func(s session) bool {
		return s.lease == lease && s.from.After(from) && s.from.Before(to)
	})
}
