package functions

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/schemas"
)

// ErrPanicked is wrapped by the error that stands for the panic of a strategy.
var ErrPanicked = errors.New("panicked")

// Try is [Function.Evaluate], but makes an error of a panic. That error wraps [ErrPanicked] and [schemas.ErrInvalid]: a
// strategy that cannot bear a scope would not bear it the next time either.
func (f Function) Try(scope schemas.Event) (answer schemas.Intents, err error) {
	defer func() {
		if p := recover(); p != nil {
			answer = schemas.Intents{}
			err = fmt.Errorf("strategy %s %w at scope %s: %w: %v", f.Strategy.Name, ErrPanicked, scope.ID, schemas.ErrInvalid, p)
		}
	}()
	return f.Evaluate(scope)
}

// Reply makes the event that carries the answer to a scope: caused by the scope, of its chain and its trace, and to expire
// [IntentTTL] after began, when the scope was taken up. source is the CloudEvents source of the host; the strategy's name is
// added to it.
func Reply(source string, answer schemas.Intents, scope schemas.Event, began time.Time) (schemas.Event, error) {
	e, err := schemas.NewEvent(source+"/"+answer.Strategy, answer, time.Now(), scope)
	if err != nil {
		return schemas.Event{}, err
	}
	e.Expires = began.Add(IntentTTL).UTC()
	return e, nil
}

// EvaluationSeconds makes the histogram of how long each strategy takes to decide on one scope, which is the same
// wherever a strategy is hosted. It is not registered yet.
func EvaluationSeconds() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rehome_evaluation_seconds", Help: "Time to decide on one scope.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"strategy"})
}
