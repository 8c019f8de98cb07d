package view

import (
	"cmp"
)

// Trouble is what is wrong with a pod. A lower value is worse.
type Trouble int

// The troubles of a pod, the worst first. Those up to Failed are about its inspections.
const (
	Slow Trouble = iota // or hung, if Inspection.Hung is true
	Quarantined
	Failed
	NotKnown
	Unready
	Degraded // some containers do not run
	NoTrouble
)

// Trouble returns the worst that is wrong with the pod.
func (p *Pod) Trouble() Trouble {
	switch {
	case p.Inspection != nil:
		return Slow
	case p.Quarantine != nil:
		return Quarantined
	case p.Error != "":
		return Failed
	case p.State == Unknown:
		return NotKnown
	case p.State == NotReady:
		return Unready
	case p.Running < p.Total:
		return Degraded
	}
	return NoTrouble
}

// Sick reports whether the pod cannot be inspected: its inspection takes long, hung or
// failed.
func (p *Pod) Sick() bool { return p.Trouble() <= Failed }

// PodOrders are the orders of [ComparePods].
func PodOrders() []string { return []string{"name", "restarts", "age", "known"} }

// ComparePods compares two pods by their names, or so that the most restarts, the
// youngest, or the oldest information comes first.
func ComparePods(order string, a, b *Pod) int {
	var c int
	switch order {
	case "restarts":
		c = cmp.Compare(b.Restarts, a.Restarts)
	case "age":
		c = b.CreatedAt().Compare(a.CreatedAt())
	case "known":
		c = a.CurrentAsOf.Compare(b.CurrentAsOf)
	}
	return cmp.Or(c, cmp.Compare(a.Node, b.Node), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// FullName returns NAMESPACE/NAME, or the UID if the name is not known, after the node if
// there is one.
func (p *Pod) FullName() string {
	name := p.Namespace + "/" + p.Name
	if p.Name == "" {
		name = string(p.UID)
	}
	if p.Node != "" {
		return p.Node + " " + name
	}
	return name
}
