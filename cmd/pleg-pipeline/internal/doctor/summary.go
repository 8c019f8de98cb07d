package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// top is the number of calls or pods that a finding names.
const top = 5

// inOrder compares two methods by their place in an examination. Some calls are made at once, and
// which returns first says nothing.
func inOrder(a, b string) int {
	methods := []string{"Version", "Status", "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "ImageFsInfo"}
	return slices.Index(methods, a) - slices.Index(methods, b)
}

// count fills the counts, and finds the pods with the most bytes and the most dead containers.
func (r *Report) count(items []item) {
	r.Counts = Counts{}
	sizes, dead := make(map[string]PodSize), make(map[string]PodDead)
	for _, i := range items {
		n := 0
		if i.exited {
			n = 1
		}
		of, running := &r.Counts.Sandboxes, &r.Counts.Ready
		if i.Method == "ContainerStatus" {
			of, running = &r.Counts.Containers, &r.Counts.Running
		}
		*of++
		if i.runs {
			*running++
		}
		r.Counts.Exited += n
		size := sizes[i.PodUID]
		for k, v := range i.annotations {
			size.Annotations += len(k) + len(v)
		}
		sizes[i.PodUID] = PodSize{i.Pod, i.PodUID, size.Bytes + i.bytes, size.Annotations}
		dead[i.PodUID] = PodDead{i.Pod, i.PodUID, dead[i.PodUID].Exited + n}
	}
	r.Counts.Pods = len(sizes)
	r.Largest = largest(sizes, func(p PodSize) int { return p.Bytes })
	r.MostDead = largest(dead, func(p PodDead) int { return p.Exited })
}

// largest returns the values with the largest numbers, the largest first, without those
// of 0.
func largest[T any](values map[string]T, number func(T) int) (all []T) {
	keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(number(values[b]), number(values[a])), cmp.Compare(a, b))
	})
	for _, key := range keys[:min(len(keys), top)] {
		if number(values[key]) > 0 {
			all = append(all, values[key])
		}
	}
	return all
}

// summarize fills in what the report says about the calls.
func (e *examination) summarize() {
	r := e.report
	r.Calls = []Call{}
	if r.Runtime != "" {
		r.Lists = []ListSize{{Method: "ListPodSandbox", LimitBytes: listLimit}, {Method: "ListContainers", LimitBytes: listLimit}}
	}
	took := make(map[string][]float64) // by method
	var statuses float64               // how long they took
	for _, c := range e.calls {
		n := slices.IndexFunc(r.Calls, func(s Call) bool { return s.Method == c.Method })
		if n < 0 {
			n = len(r.Calls)
			r.Calls = append(r.Calls, Call{Method: c.Method})
		}
		if i := slices.IndexFunc(r.Lists, func(l ListSize) bool { return l.Method == c.Method }); i >= 0 {
			r.Lists[i].Bytes += c.bytes
			r.Lists[i].Portioned = r.Lists[i].Portioned || status.Code(c.err) == codes.ResourceExhausted
			if r.Calls[n].Count == 0 { // not a portion
				r.Relist.ListSeconds = max(r.Relist.ListSeconds, c.Seconds)
			}
		}
		r.Calls[n].add(&c)
		took[c.Method] = append(took[c.Method], c.Seconds)
		if c.ID != "" {
			statuses += c.Seconds
			r.addItem(&c)
		}
	}
	for n := range r.Calls {
		s := &r.Calls[n]
		all := slices.Sorted(slices.Values(took[s.Method]))
		s.MedianSeconds, s.LongestSecs = all[len(all)/2], all[len(all)-1]
	}
	slices.SortFunc(r.Calls, func(a, b Call) int { return inOrder(a.Method, b.Method) })
	slices.SortFunc(r.Hung, func(a, b ItemCall) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(r.Slowest, func(a, b ItemCall) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID)) })
	r.Slowest = r.Slowest[:min(len(r.Slowest), top)]
	// A serial relist takes as long as the lists and the calls that were made, for all items.
	r.Relist.OneByOneSeconds = r.Relist.ListSeconds
	if n := r.Counts.Inspected; n > 0 {
		r.Relist.OneByOneSeconds += statuses / float64(n) * float64(r.Counts.Sandboxes+r.Counts.Containers)
	}
}

// add counts a call of this method.
func (s *Call) add(c *madeCall) {
	s.Count++
	switch {
	case c.hangs():
		s.Hung++
	case c.fails():
		s.Failed++
	default:
		return
	}
	s.Error = cmp.Or(s.Error, c.Error)
}

// addItem adds a status call to the calls of its kind.
func (r *Report) addItem(c *madeCall) {
	r.Counts.Inspected++
	item := c.ItemCall
	if c.fails() {
		r.Failed = append(r.Failed, item)
		return
	}
	item.Error = ""
	if c.hangs() {
		r.Hung = append(r.Hung, item)
	} else {
		r.Slowest = append(r.Slowest, item)
	}
}

// unmet returns what the runtime says about a condition that does not hold.
func (r *Report) unmet(condition string) (text string, unmet bool) {
	for _, c := range r.Conditions {
		if c.Type == condition && !c.Status {
			return strings.TrimSpace(c.Reason + " " + c.Message), true
		}
	}
	return "", false
}
