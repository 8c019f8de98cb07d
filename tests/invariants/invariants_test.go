// Package invariants_test tests the promises of docs/reliability.md: pods hang, the runtime is
// slow, or the embedder's code misbehaves.
package invariants_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var errInspect = errors.New("inspection failed")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodePods is the number of pods of a node, as the kubelet allows by default.
const nodePods = 110

// startNode runs a pipeline that knows some running pods and is between two lists. It then
// subscribes.
func startNode(t *testing.T, o pipeline.Options, pods int) (p *kit.Pipeline, events <-chan pleg.Event) {
	t.Helper()
	p = kit.New(t, o)
	kit.Fill(p.Runtime, pods, "c=running")
	p.StartBetweenLists(t)
	return p, p.Events(t, 10*pods)
}

// Options.History states the cost of an event in the log.
func TestSizeOfTheLog(t *testing.T) {
	const stated, pods, least, most = "about 300 bytes each", 200, 1000, 9000
	synctest.Test(t, func(t *testing.T) {
		var heaps [2]uint64
		for n, history := range []int{least, most} {
			r := kit.New(t, pipeline.Options{History: history})
			r.Start(t)
			for step := range most/pods/3 + 10 { // a container dies, is removed, and another one starts
				for _, uid := range kit.UIDs(pods) {
					r.Runtime.Set(uid, fmt.Sprintf("%s-%061d=running", uid, step))
				}
				kit.Relist(1)
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			heaps[n] = m.HeapAlloc
			kit.Must(t, r.Stop())
			runtime.KeepAlive(r)
		}
		size := int64(heaps[1]-heaps[0]) / (most - least)
		t.Logf("%d bytes for each event", size)
		if size < 240 || size > 400 {
			t.Errorf("%d bytes for each event, the documentation says %s", size, stated)
		}
	})
	if text, err := os.ReadFile("../../options.go"); err != nil || !strings.Contains(string(text), stated) {
		t.Errorf("options.go does not say %q: %v", stated, err)
	}
}
