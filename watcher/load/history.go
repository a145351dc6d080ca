package load

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// maxAge is from which age on a sample does not count.
const maxAge = time.Minute

// weight is how much of a smoothed figure the one before is, as in the peer.
const weight = 0.9

// history is what is known of nodes, by name: the samples up to now as one. It is never changed.
type history map[string]Sample

// next is the history after another round. It knows of those nodes only that are in the samples.
func (h history) next(samples map[string]Sample, smooth bool) history {
	all := make(history, len(samples))
	for name, sample := range samples {
		if before, known := h[name]; known && smooth {
			sample.Used = smoothed(before.Used, sample.Used)
		}
		all[name] = sample
	}
	return all
}

// at is what a node uses; nil if it is not known at the time now.
func (h history) at(name string, now time.Time) corev1.ResourceList {
	sample, known := h[name]
	if !known || !now.Before(sample.Good) {
		return nil
	}
	return sample.Used.DeepCopy()
}

// smoothed is the usage after a new sample: of cpu in thousandths, of everything else in whole units.
func smoothed(before, sample corev1.ResourceList) corev1.ResourceList {
	used := make(corev1.ResourceList, len(sample))
	for name, new := range sample {
		old, known := before[name]
		switch {
		case !known:
			used[name] = new
		case name == corev1.ResourceCPU:
			used[name] = *resource.NewMilliQuantity(mean(old.MilliValue(), new.MilliValue()), new.Format)
		default:
			used[name] = *resource.NewQuantity(mean(old.Value(), new.Value()), new.Format)
		}
	}
	return used
}

func mean(before, sample int64) int64 {
	return int64(math.Round(weight*float64(before) + (1-weight)*float64(sample)))
}
