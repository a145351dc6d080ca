package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// fileMaintenance is what a policy file says about maintenances.
type fileMaintenance struct {
	Restart *bool       `json:"restart,omitzero"`
	Protect []string    `json:"protect,omitzero"`
	Start   []fileStart `json:"start,omitzero"`
}

type fileStart struct {
	Condition string                 `json:"condition,omitzero"`
	Status    corev1.ConditionStatus `json:"status,omitzero"`
	Taint     string                 `json:"taint,omitzero"`
}

func (f fileMaintenance) validate() error {
	var found Findings
	for i, rule := range f.Protect {
		at := "protect" + Item(i)
		switch {
		case !slices.Contains(MaintenanceRules(), rule):
			found.Add(at, rule, "is not a rule that can hold for pods of maintenances",
				fmt.Sprintf("want one of %v", MaintenanceRules()))
		case slices.Contains(f.Protect[:i], rule):
			found.Add(at, rule, "is given twice", "keep one")
		}
	}
	for i, s := range f.Start {
		found.Join("start"+Item(i), s.validate())
	}
	return found.Err()
}

func (f fileStart) validate() error {
	var found Findings
	statuses := []string{string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown)}
	switch {
	case f.Condition == "" && f.Taint == "":
		found.Add("condition", nil, "is missing", "write condition, or taint")
	case f.Condition != "" && f.Taint != "":
		found.Add("taint", f.Taint, "cannot be used together with condition", "write two entries")
	case f.Taint != "":
		found.Join("taint", validateTaint(f.Taint))
		if f.Status != "" {
			found.Add("status", f.Status, "goes only with condition", "")
		}
	case len(validation.IsQualifiedName(f.Condition)) > 0:
		found.Add("condition", f.Condition, "is not the type of a condition", "write NAME or PREFIX/NAME")
	}
	if f.Condition != "" && f.Status != "" && !slices.Contains(statuses, string(f.Status)) {
		found.Add("status", f.Status, "is not known", `want "True", "False" or Unknown`)
	}
	return found.Err()
}

func validateTaint(text string) error {
	s := readTaint(text)
	effects := []string{
		string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute),
	}
	wrong := len(validation.IsQualifiedName(s.Key)) > 0 || len(validation.IsValidLabelValue(s.Value)) > 0 ||
		strings.Contains(text, ":") && !slices.Contains(effects, string(s.Effect))
	if !wrong {
		return nil
	}
	return &FieldError{Value: text, Reason: "is not a taint",
		Right: "write KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT with the effect " + either(effects)}
}

// maintenance is what the file says, with defaults filled in.
func (f *fileMaintenance) maintenance(signals Signals) Maintenance {
	m := Maintenance{signals: signals}
	if f == nil {
		return m
	}
	m.RestartAsUsual = f.Restart != nil && !*f.Restart
	m.Protect = f.Protect
	for _, s := range f.Start {
		sign := StartSign{Condition: s.Condition, Status: s.Status}
		if s.Condition == "" {
			sign.Taint = readTaint(s.Taint)
		} else if s.Status == "" {
			sign.Status = corev1.ConditionTrue
		}
		m.Start = append(m.Start, sign)
	}
	return m
}

// written is what differs from the defaults, as it stands in a file. nil: nothing does.
func (m Maintenance) written() *fileMaintenance {
	if !m.RestartAsUsual && len(m.Protect) == 0 && len(m.Start) == 0 {
		return nil
	}
	f := fileMaintenance{Protect: m.Protect}
	if m.RestartAsUsual {
		f.Restart = new(bool)
	}
	for _, s := range m.Start {
		w := fileStart{Condition: s.Condition, Status: s.Status, Taint: s.Taint.String()}
		if s.Status == corev1.ConditionTrue {
			w.Status = ""
		}
		f.Start = append(f.Start, w)
	}
	return &f
}
