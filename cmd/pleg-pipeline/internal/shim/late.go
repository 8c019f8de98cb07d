package shim

import (
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// overloaded is the number of threads for each CPU that run or wait to run, above which ends are
	// expected late, for at most lateBy: containerd tries again with a wait that doubles if an end took it too
	// long, and was 92 s late beside 20 busy loops on two CPUs.
	overloaded = 4
	lateBy     = 5 * time.Minute
)

// answers reports whether the runtime answers as usual.
func answers(s pleg.Status) bool {
	r := s.Relist
	return r.Failures == 0 && nodestate.Of(s.Details).Since.Slow.IsZero() && (r.Started.IsZero() || s.At.Sub(r.Started) < settle)
}

// missesEnds reports whether the runtime calls a container running whose process has ended.
func (w *Watcher) missesEnds() bool {
	for _, c := range w.wanted {
		if !c.ended.IsZero() {
			return true
		}
	}
	return false
}

// isOverloaded reports whether many threads wait for a CPU of the node now.
func (w *Watcher) isOverloaded() bool {
	text, _ := fs.ReadFile(w.o.Proc, "loadavg") // empty if it is not there
	var load [3]float64
	var runnable int
	_, err := fmt.Sscan(strings.ReplaceAll(string(text), "/", " "), &load[0], &load[1], &load[2], &runnable)
	return err == nil && runnable > overloaded*runtime.NumCPU()
}
