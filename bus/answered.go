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
	return b.heads(ctx, StreamIntents, IntentsChannels)
}

// Asked names the scopes that have an answer, and those that wait for one. A scope can be named twice.
func (b *Bus) Asked(ctx context.Context) ([]schemas.ScopeHead, error) {
	waiting, err := b.heads(ctx, StreamScopes, scopeChannels)
	if err != nil {
		return nil, err
	}
	answered, err := b.Answered(ctx)
	return append(waiting, answered...), err
}

// scopeChannels are the subjects of all scopes.
const scopeChannels = schemas.Prefix + ".scope.>"

// heads names the scopes on the subjects of a stream.
func (b *Bus) heads(ctx context.Context, name, subjects string) ([]schemas.ScopeHead, error) {
	if !b.nc.IsConnected() {
		return nil, b.link.disconnected()
	}
	stream, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("list the subjects of %s: %w", name, b.publishError(ctx, subjects, err))
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subjects))
	if err != nil {
		return nil, fmt.Errorf("list the subjects of %s: %w", name, err)
	}
	heads := make([]schemas.ScopeHead, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		if h, ok := headOf(subject, subjects); ok {
			heads = append(heads, h)
		}
	}
	return heads, nil
}

// headOf reads the subject of a scope or an answer. ok is false for one that Rehome does not write.
func headOf(subject, subjects string) (h schemas.ScopeHead, ok bool) {
	rest, ours := strings.CutPrefix(subject, strings.TrimSuffix(subjects, ">"))
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
