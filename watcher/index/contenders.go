package index

import (
	corev1 "k8s.io/api/core/v1"
)

// Contender is a pod with those in its domain that its own terms keep away, in the order of their names.
type Contender struct {
	Pod    *corev1.Pod
	Repels []*corev1.Pod
}

// Contenders are the pods of a domain that keep another one away or are kept away, in the order of their names.
func (d *Domains) Contenders(key string) []Contender {
	repels := map[*corev1.Pod]map[*corev1.Pod]bool{}
	for t := range d.at[key] {
		term := d.terms[t]
		for _, carrier := range term.carriers[key] {
			for _, other := range term.repelled[key] {
				if other.UID == carrier.UID {
					continue
				}
				if repels[carrier] == nil {
					repels[carrier] = map[*corev1.Pod]bool{}
				}
				repels[carrier][other] = true
			}
		}
	}
	involved := map[*corev1.Pod]bool{}
	for carrier, others := range repels {
		involved[carrier] = true
		for other := range others {
			involved[other] = true
		}
	}
	list := make([]Contender, 0, len(involved))
	for _, p := range sortedSet(involved) {
		list = append(list, Contender{Pod: p, Repels: sortedSet(repels[p])})
	}
	return list
}

func sortedSet(set map[*corev1.Pod]bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for p := range set {
		pods = append(pods, p)
	}
	sortPods(pods)
	return pods
}
