package bus

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// checkTraces checks that each kind of hostile work is visible, and how often.
func (h *attacker) checkTraces(processes map[string]*scene.Process) {
	h.T.Helper()
	h.same("verdicts on forged intents", func() map[string]int { return h.counts(h.verdicts) }, map[string]int{
		"rejected PodMoved": 3 * blocks, "rejected ProfileUnknown": 3 * blocks, "rejected Protected": blocks, "rejected PodGone": blocks,
	})
	h.same("refusals of the server", func() map[string]int { return h.counts(h.refused) }, map[string]int{
		"larger than any message": 6 * blocks, "larger than any request": blocks,
	})
	asked := h.counts(h.receipts)
	allowed, many := asked["flood rejected NotAllowed"], asked["flood rejected TooManyRequests"]
	h.same("receipts", func() map[string]int { return h.counts(h.receipts) }, map[string]int{
		"rude rejected Malformed": 5 * blocks, "rude rejected NotAllowed": 3 * blocks, "nobody rejected NotAllowed": blocks,
		"flood rejected NotAllowed": allowed, "flood rejected TooManyRequests": many,
	})
	rejected := processes["watcher"].Metric(`rehome_requests_total{sender="flood",state="rejected"}`)
	h.T.Logf("of the flood %d were stored, %d looked at, and %d were too many, as %d receipts say", rejected, allowed, h.withoutReceipt+many, many)
	if allowed < 60 || many == 0 || h.withoutReceipt == 0 || allowed+many+h.withoutReceipt > rejected || rejected > floods {
		h.T.Errorf("of the flood %d are rejected, %d not allowed, %d with a receipt and %d without as too many", rejected, allowed, many, h.withoutReceipt)
	}
	const question = `rehome_dispatcher_requests_total{result="%s",strategy="%s"}`
	babbled := processes["dispatcher"].Metric(fmt.Sprintf(question, "refused", "Babbles"))
	stolen := processes["dispatcher"].Metric(fmt.Sprintf(question, "wrong", "Steals"))
	want := map[string]int{
		"REHOME_SCOPES Hangs: hangs": 1, "REHOME_SCOPES Babbles: garbage": babbled, "REHOME_SCOPES Steals: beyond the scope": stolen,
		"REHOME_INTENTS actuator: wrong subject": 2 * blocks, "REHOME_INTENTS actuator: beyond the scope": blocks,
		"REHOME_EVENTS watcher: wrong source": 16 * blocks, "REHOME_EVENTS watcher: wrong outcome": 4 * blocks,
		"a letter of another participant": 4 * blocks,
	}
	for _, flaw := range []string{"no event", "another shape", "no JSON", "unpacks to too much"} {
		want["REHOME_SCOPES "+honestStrategy+": "+flaw], want["REHOME_INTENTS actuator: "+flaw] = blocks, blocks
		want["REHOME_EVENTS watcher: "+flaw] = 3 * blocks
	}
	h.same("dead letters", h.deadLetters, want)
	if babbled == 0 || stolen == 0 {
		h.T.Errorf("%d answers were garbage and %d beyond the scope, want some of both", babbled, stolen)
	}
	h.checkLimits()
}

// same waits until the values equal the wanted ones.
func (h *attacker) same(what string, got func() map[string]int, want map[string]int) {
	h.T.Helper()
	expect.EventuallyWithState(h.T, what+" are "+fmt.Sprint(want), func() (bool, string) {
		now := got()
		return reflect.DeepEqual(now, want), fmt.Sprint(now)
	})
}

func (h *attacker) counts(of map[string]int) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(of)
}

// deadLetters counts dead letters by stream, author, and reason.
func (h *attacker) deadLetters() map[string]int {
	h.T.Helper()
	dead, err := h.js.Stream(h.T.Context(), bus.StreamDead)
	h.T.Must(err)
	found := map[string]int{}
	for i := dead.CachedInfo().State.FirstSeq; i <= dead.CachedInfo().State.LastSeq; i++ {
		m, err := dead.GetMsg(h.T.Context(), i)
		h.T.Must(err)
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

// checkLimits checks that every stream has a limit and respects it.
func (h *attacker) checkLimits() {
	h.T.Helper()
	for _, name := range []string{bus.StreamScopes, bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamDead} {
		stream, err := h.js.Stream(h.T.Context(), name)
		h.T.Must(err)
		most, holds := stream.CachedInfo().Config.MaxBytes, stream.CachedInfo().State.Bytes
		if most <= 0 || holds > uint64(most) {
			h.T.Errorf("stream %s holds %d bytes, and may hold %d", name, holds, most)
		}
	}
}
