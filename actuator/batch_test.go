package actuator

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func TestBatchesShareOneBucketOfThePolicysRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 10, Burst: 2}}}).Batches()
		defer b.Close()
		began := time.Now()
		var got []time.Duration
		for range 5 {
			if err := b.turn(t.Context()); err != nil {
				t.Fatal(err)
			}
			got = append(got, time.Since(began))
		}
		want := []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("turns after %v, want %v", got, want)
		}
	})
}

func TestNothingIsAskedForWhenTheContextHasEnded(t *testing.T) {
	b := New(Config{}).Batches() // without a client: a call would panic
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	opens := []Open{{Strategy: "S", Intent: schemas.Intent{ID: "1"}}, {Strategy: "S", Intent: schemas.Intent{ID: "2"}}}
	got, err := b.Handle(ctx, opens)
	want := []schemas.Verdict{
		opens[0].Verdict(schemas.Deferred, schemas.ReasonAPIUnavailable, "context canceled"),
		opens[1].Verdict(schemas.Deferred, schemas.ReasonAPIUnavailable, "context canceled"),
	}
	if !errors.Is(err, context.Canceled) || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestATurnThatWaitsEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 1, Burst: 1}}}).Batches()
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		began := time.Now()
		first, second := b.turn(ctx), b.turn(ctx)
		if waited := time.Since(began); first != nil || !errors.Is(second, context.DeadlineExceeded) || waited != 400*time.Millisecond {
			t.Errorf("first %v, second %v after %v", first, second, waited)
		}
	})
}
