package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// ClusterVerdict returns the verdict on the pods of many nodes. problem is the problem of a node;
// empty if there is none.
func ClusterVerdict(problem string, pods []Pod, now time.Time) verdict.Verdict {
	var all []verdict.Finding
	if problem != "" {
		all = append(all, verdict.Finding{Severity: verdict.Problem, Summary: problem})
	}
	found := slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Finding == nil })
	slices.SortFunc(found, func(a, b Pod) int { return CompareSeverity(&a, &b) })
	for n, p := range found {
		f := *p.Finding
		f.Summary = p.FullName() + " " + f.Complaint(now)
		if more := len(found) - 1; n == 0 && more > 0 {
			f.Summary += fmt.Sprintf("; %d more", more)
		}
		all = append(all, f)
	}
	return verdict.New(all, "all nodes publish")
}

// PodOrders are the orders of [ComparePods].
func PodOrders() []string { return []string{"name", "restarts", "age", "known"} }

// ComparePods puts the smaller name, the most restarts, the youngest pod, or the oldest information
// first, depending on the order.
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
	name := fullName(p.Namespace, p.Name, p.UID)
	if p.Node != "" {
		return p.Node + " " + name
	}
	return name
}

// Label returns the name of the pod, with the UID if another pod of its node shares the name.
func (p *Pod) Label() string {
	switch {
	case p.Name == "":
		return string(p.UID)
	case p.shared:
		return p.Name + " (" + string(p.UID) + ")"
	}
	return p.Name
}

// markShared marks the pods that share a name, such as a static pod and its successor.
func markShared(pods []Pod) {
	first := make(map[[2]string]int)
	for n := range pods {
		name := [2]string{pods[n].Namespace, pods[n].Name}
		if i, ok := first[name]; ok {
			pods[i].shared, pods[n].shared = true, true
		} else {
			first[name] = n
		}
	}
}
