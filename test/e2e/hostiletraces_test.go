package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// leftTraces checks that each kind of hostile work is visible, and how often.
func (h *hostility) leftTraces(processes map[string]*process) {
	h.t.Helper()
	h.same("verdicts on forged intents", func() map[string]int { return h.counted(h.verdicts) }, map[string]int{
		"rejected PodMoved": 3 * blocks, "rejected ProfileUnknown": 3 * blocks, "rejected Protected": blocks, "rejected PodGone": blocks,
	})
	h.same("refusals of the server", func() map[string]int { return h.counted(h.refused) }, map[string]int{
		"larger than any message": 6 * blocks, "larger than any request": blocks,
	})
	asked := h.counted(h.receipts)
	allowed, many := asked["flood rejected NotAllowed"], asked["flood rejected TooManyRequests"]
	h.same("receipts", func() map[string]int { return h.counted(h.receipts) }, map[string]int{
		"rude rejected Malformed": 5 * blocks, "rude rejected NotAllowed": 3 * blocks, "nobody rejected NotAllowed": blocks,
		"flood rejected NotAllowed": allowed, "flood rejected TooManyRequests": many,
	})
	rejected := processes["watcher"].metric(`rehome_requests_total{sender="flood",state="rejected"}`)
	h.t.Logf("of the flood %d were stored, %d looked at, and %d were too many, as %d receipts say", rejected, allowed, h.untold+many, many)
	if allowed < 60 || many == 0 || h.untold == 0 || allowed+many+h.untold > rejected || rejected > floods {
		h.t.Errorf("of the flood %d are rejected, %d not allowed, %d with a receipt and %d without as too many", rejected, allowed, many, h.untold)
	}
	const question = `rehome_dispatcher_requests_total{result="%s",strategy="%s"}`
	babbled := processes["dispatcher"].metric(fmt.Sprintf(question, "refused", "Babbles"))
	stolen := processes["dispatcher"].metric(fmt.Sprintf(question, "wrong", "Steals"))
	want := map[string]int{
		"REHOME_SCOPES Hangs: hangs": 1, "REHOME_SCOPES Babbles: garbage": babbled, "REHOME_SCOPES Steals: beyond the scope": stolen,
		"REHOME_INTENTS actuator: wrong subject": 2 * blocks, "REHOME_INTENTS actuator: beyond the scope": blocks,
		"REHOME_EVENTS watcher: wrong source": 16 * blocks, "REHOME_EVENTS watcher: wrong outcome": 4 * blocks,
		"a letter of another participant": 4 * blocks,
	}
	for _, flaw := range []string{"no event", "another shape", "no JSON", "unpacks to too much"} {
		want["REHOME_SCOPES "+honest+": "+flaw], want["REHOME_INTENTS actuator: "+flaw] = blocks, blocks
		want["REHOME_EVENTS watcher: "+flaw] = 3 * blocks
	}
	h.same("dead letters", h.letters, want)
	if babbled == 0 || stolen == 0 {
		h.t.Errorf("%d answers were garbage and %d beyond the scope, want some of both", babbled, stolen)
	}
	h.bounded()
}

// same waits until the values equal the wanted ones.
func (h *hostility) same(what string, got func() map[string]int, want map[string]int) {
	h.t.Helper()
	expect.EventuallyWithState(h.t, what+" are "+fmt.Sprint(want), func() (bool, string) {
		now := got()
		return reflect.DeepEqual(now, want), fmt.Sprint(now)
	})
}

func (h *hostility) counted(of map[string]int) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(of)
}

// metric returns the value of one line of the metrics, or 0 if it is missing.
func (p *process) metric(name string) (value int) {
	p.t.Helper()
	_, text := p.Get("metrics")
	for line := range strings.Lines(text) {
		if number, ok := strings.CutPrefix(line, name+" "); ok {
			var v float64
			_, _ = fmt.Sscan(number, &v)
			return int(v)
		}
	}
	return 0
}

// letters counts dead letters by stream, author, and reason.
func (h *hostility) letters() map[string]int {
	h.t.Helper()
	dead, err := h.js.Stream(h.t.Context(), bus.StreamDead)
	h.t.Must(err)
	found := map[string]int{}
	for i := dead.CachedInfo().State.FirstSeq; i <= dead.CachedInfo().State.LastSeq; i++ {
		m, err := dead.GetMsg(h.t.Context(), i)
		h.t.Must(err)
		if m.Header.Get(bus.HeaderStream) == "" {
			found["a letter of another participant"]++
			continue
		}
		words := strings.Split(m.Subject, ".")
		found[words[2]+" "+words[3]+": "+flawIn(m.Header.Get(bus.HeaderError))]++
	}
	return found
}

// flawIn returns the kind of hostile work behind the error of a dead letter.
func flawIn(why string) string {
	for _, flaw := range [][2]string{
		{"no CloudEvent: neither", "no event"}, {"cannot unmarshal array", "another shape"}, {"data is not JSON", "no JSON"},
		{"has more than", "unpacks to too much"}, {"hangs, its scopes wait", "hangs"}, {"the subject is ", "wrong subject"},
		{"but the scope is ", "beyond the scope"}, {"is not in the scope", "beyond the scope"}, {"is protected: ", "beyond the scope"},
		{"pods of the scope, got", "beyond the scope"}, {"read CloudEvent", "garbage"},
		{"its source is", "wrong source"}, {"outcome: want one of", "wrong outcome"},
	} {
		if strings.Contains(why, flaw[0]) {
			return flaw[1]
		}
	}
	return why
}

// bounded checks that every stream has a limit and respects it.
func (h *hostility) bounded() {
	h.t.Helper()
	for _, name := range []string{bus.StreamScopes, bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamDead} {
		stream, err := h.js.Stream(h.t.Context(), name)
		h.t.Must(err)
		most, holds := stream.CachedInfo().Config.MaxBytes, stream.CachedInfo().State.Bytes
		if most <= 0 || holds > uint64(most) {
			h.t.Errorf("stream %s holds %d bytes, and may hold %d", name, holds, most)
		}
	}
}
