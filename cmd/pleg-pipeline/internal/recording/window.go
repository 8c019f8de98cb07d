package recording

import (
	"maps"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A window keeps the lines of this time, up to this size. A node of 110 pods with a change each
// second needs some 10 MB.
const (
	windowSpan  = 8 * time.Minute
	windowBytes = 16 << 20
)

// window keeps the last minutes of a recording in memory. Older answers are forgotten, except the
// state from which a recording can start: the last lists and the newest other answers. One
// goroutine uses it.
type window struct {
	lines []line
	size  int             // of the lines
	state map[string]line // by question
}

func newWindow() *window { return &window{state: make(map[string]line)} }

// add adds a line and forgets the oldest lines.
func (w *window) add(l line) {
	w.lines = append(w.lines, l)
	w.size += l.size
	n := 0
	for ; time.Duration(l.At-w.lines[n].At) > windowSpan || w.size > windowBytes && n < len(w.lines)-1; n++ {
		w.size -= w.lines[n].size
		w.forget(w.lines[n])
	}
	clear(w.lines[:n]) // the memory of these lines is free before append moves the others
	w.lines = w.lines[n:]
}

// forget makes a line a part of the state.
func (w *window) forget(l line) {
	_, isList := kinds[l.Method]
	switch {
	case l.Node != nil:
		w.state["node"] = l
	case isList && (l.items == nil || l.Request != nil):
	case isList:
		w.state[l.Method] = l
		w.forgetGone()
	default:
		request := empty(methods[l.Method].request)
		_ = parse(l.Request, request) // there may be none
		w.state[question(l.Method, request)] = l
	}
}

// forgetGone forgets a status that is older than both lists and whose container or sandbox is in
// neither.
func (w *window) forgetGone() {
	before := min(w.state[listSandboxes].At, w.state[listContainers].At)
	exists := map[string]bool{"node": true, listSandboxes: true, listContainers: true, question("Version", &cri.VersionRequest{}): true}
	for list := range kinds {
		for _, it := range w.state[list].items {
			exists[it.status] = true
		}
	}
	maps.DeleteFunc(w.state, func(q string, l line) bool { return !exists[q] && l.At < before })
}

// all returns the state at the time of the first line, and then the lines.
func (w *window) all() (all []line) {
	for _, q := range slices.Sorted(maps.Keys(w.state)) {
		l := w.state[q]
		l.At, l.Took = w.lines[0].At, 0
		all = append(all, l)
	}
	return append(all, w.lines...)
}
