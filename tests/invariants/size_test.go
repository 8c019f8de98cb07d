package invariants_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Options.History and --history state what an event in the log costs.
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
	for _, file := range []string{"options.go", "cmd/pleg-pipeline/internal/cli/pipelineflags.go"} {
		if text, err := os.ReadFile("../../" + file); err != nil || !strings.Contains(string(text), stated) {
			t.Errorf("%s does not say %q: %v", file, stated, err)
		}
	}
}
