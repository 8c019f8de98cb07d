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

// methods are the calls of an examination, in the order of the report: some are made at once, and
// which returns first says nothing.
var methods = []string{"Version", "Status", "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "ImageFsInfo"}

// count fills the counts, and finds the pods with the most bytes, and the most dead containers and
// sandboxes.
func (r *Report) count(items []item) {
	r.Counts = Counts{}
	pods := make(map[string]PodSize)
	for _, i := range items {
		of, running := &r.Counts.Sandboxes, &r.Counts.Ready
		if i.Method == "ContainerStatus" {
			of, running = &r.Counts.Containers, &r.Counts.Running
		}
		*of++
		if i.runs {
			*running++
		}
		p := pods[i.PodUID]
		p.Pod, p.PodUID, p.Bytes = i.Pod, i.PodUID, p.Bytes+i.bytes
		for k, v := range i.annotations {
			p.Annotations += len(k) + len(v)
		}
		if i.exited {
			p.Exited++
		}
		if i.exited && of == &r.Counts.Containers {
			r.Counts.Exited++
		}
		pods[i.PodUID] = p
	}
	r.Counts.Pods = len(pods)
	r.Largest = largest(pods, func(p PodSize) int { return p.Bytes })
	r.MostDead = largest(pods, func(p PodSize) int { return p.Exited })
}

// largest returns the pods with the largest numbers, the largest first, without zeros.
func largest(pods map[string]PodSize, number func(PodSize) int) []PodSize {
	all := slices.SortedFunc(maps.Values(pods), func(a, b PodSize) int {
		return cmp.Or(cmp.Compare(number(b), number(a)), cmp.Compare(a.PodUID, b.PodUID))
	})
	all = all[:min(len(all), top)]
	return slices.DeleteFunc(all, func(p PodSize) bool { return number(p) == 0 })
}

// summarize fills in what the report says about the calls.
func (e *examination) summarize() {
	r := e.report
	r.Calls = []Call{}
	byMethod := make(map[string][]madeCall)
	for _, c := range e.calls {
		byMethod[c.Method] = append(byMethod[c.Method], c)
	}
	var statuses float64 // how long they took
	for _, method := range methods {
		calls := byMethod[method]
		if r.Runtime != "" && strings.HasPrefix(method, "List") {
			r.addList(method, calls)
		}
		if len(calls) == 0 {
			continue
		}
		s := Call{Method: method, Count: len(calls)}
		var took, answered []float64
		for _, c := range calls {
			took = append(took, c.Seconds)
			if !c.hangs() {
				answered = append(answered, c.Seconds)
			}
			r.add(&s, &c)
			if c.ID != "" {
				statuses += c.Seconds
			}
		}
		s.MedianSeconds, s.LongestSecs, s.answered = median(took), slices.Max(took), median(answered)
		r.Calls = append(r.Calls, s)
	}
	slices.SortFunc(r.Hung, func(a, b ItemCall) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(r.Slowest, func(a, b ItemCall) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID)) })
	r.Slowest = r.Slowest[:min(len(r.Slowest), top)]
	// A serial relist takes as long as the lists and the calls that were made, for all items.
	r.Relist.OneByOneSeconds = r.Relist.ListSeconds
	if n := r.Counts.Inspected; n > 0 {
		r.Relist.OneByOneSeconds += statuses / float64(n) * float64(r.Counts.Sandboxes+r.Counts.Containers)
	}
}

// median returns 0 for no values.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}

// addList adds the size of a list. The first call is for the whole list, any others for its portions.
func (r *Report) addList(method string, calls []madeCall) {
	l := ListSize{Method: method, LimitBytes: listLimit}
	for n, c := range calls {
		l.Bytes += c.bytes
		l.Portioned = l.Portioned || status.Code(c.err) == codes.ResourceExhausted
		if n == 0 {
			r.Relist.ListSeconds = max(r.Relist.ListSeconds, c.Seconds)
		}
	}
	r.Lists = append(r.Lists, l)
}

// add counts how a call of a method ended, and adds a status call to the calls that ended like it.
func (r *Report) add(s *Call, c *madeCall) {
	item, like := c.ItemCall, &r.Slowest
	item.Error = ""
	switch {
	case c.hangs():
		s.Hung++
		s.Error, like = cmp.Or(s.Error, c.Error), &r.Hung
	case c.fails():
		s.Failed++
		s.Error, like = cmp.Or(s.Error, c.Error), &r.Failed
		item.Error = c.Error
	}
	if c.ID != "" {
		r.Counts.Inspected++
		*like = append(*like, item)
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
