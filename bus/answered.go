package bus

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// Answered names the scopes that have an answer in the table now, in no order: of each head only Kind, Key, Profile and
// Strategy are set. It reads no answer, only the names of the rows.
func (b *Bus) Answered(ctx context.Context) ([]schemas.ScopeHead, error) {
	if !b.nc.IsConnected() {
		return nil, b.link.disconnected()
	}
	stream, err := b.js.Stream(ctx, StreamIntents)
	if err != nil {
		return nil, fmt.Errorf("list answers: %w", b.publishError(ctx, IntentsChannels, err))
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(IntentsChannels))
	if err != nil {
		return nil, fmt.Errorf("list answers: %w", err)
	}
	heads := make([]schemas.ScopeHead, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		if h, ok := headOf(subject); ok {
			heads = append(heads, h)
		}
	}
	return heads, nil
}

// headOf reads the subject of an answer. ok is false for one that Rehome does not write.
func headOf(subject string) (h schemas.ScopeHead, ok bool) {
	rest, ours := strings.CutPrefix(subject, strings.TrimSuffix(IntentsChannels, ">"))
	tokens := strings.Split(rest, ".")
	if !ours || len(tokens) != 4 {
		return h, false
	}
	var names [4]string
	for i, token := range tokens {
		if names[i], ok = schemas.FromToken(token); !ok {
			return h, false
		}
	}
	return schemas.ScopeHead{Strategy: names[0], Profile: names[1], Kind: schemas.ScopeKind(names[2]), Key: names[3]}, true
}
