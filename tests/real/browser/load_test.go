package browser_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var loadFor = flag.Duration("page.load", 2*time.Minute, "how long TestThousandPods changes pods")

// measure notes tasks that take long, as the browser reports them from 50 ms on. It counts
// its own short tasks, of which there are fewer than tasks of the page.
const measure = `
	window.tasks = [];
	window.short = 0;
	new PerformanceObserver(list => tasks.push(...list.getEntries().map(e => e.duration))).observe({ type: "longtask" });
	setInterval(() => short++, 20);
	undefined`

// heap returns the memory of the page in bytes after a garbage collection.
func (n *node) heap() float64 {
	n.Helper()
	kit.Must(n, call(n.tab, heapprofiler.CollectGarbage, cdp.Empty{}))
	usage, err := chromedp.Call(n.tab, runtime.GetHeapUsage, cdp.Empty{})
	kit.Must(n, err)
	return usage.UsedSize
}

// TestThousandPods shows 1,000 pods of which 20 change each second. The page must stay
// smooth and need no more memory at the end than in the middle.
func TestThousandPods(t *testing.T) {
	n := newNode(t, 1000)
	eval[any](n, measure)
	ctx, cancel := context.WithTimeout(t.Context(), *loadFor)
	defer cancel()
	churned := make(chan error, 1)
	go func() { churned <- n.runtime.Churn(ctx, simruntime.ChurnOptions{Seed: 1, Rate: 20, Pods: 1000}) }()
	time.Sleep(*loadFor / 2)
	middle := n.heap()
	elements := eval[int](n, `document.getElementsByTagName("*").length`)
	time.Sleep(*loadFor/2 - time.Second)
	end := n.heap()
	if err := <-churned; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	tasks, short := eval[[]float64](n, "tasks"), eval[int](n, "short")
	late := 0
	for _, duration := range tasks {
		if duration > 100 {
			late++
		}
	}
	all := short + len(tasks)
	t.Logf("of %d tasks or more, %d took more than 50 ms, %d more than 100 ms; heap %.1f MiB, then %.1f MiB; %d elements",
		all, len(tasks), late, middle/(1<<20), end/(1<<20), elements)
	if short == 0 || float64(late) > 0.01*float64(all) {
		t.Errorf("%d of %d tasks took more than 100 ms: %.0f", late, all, tasks)
	}
	if end > 1.1*middle+1<<20 {
		t.Errorf("the heap grew from %.0f to %.0f bytes in half of the time", middle, end)
	}
	if after := eval[int](n, `document.getElementsByTagName("*").length`); after > elements+100 {
		t.Errorf("the page has %d elements, before %d", after, elements)
	}
}
