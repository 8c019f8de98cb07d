package browser_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// TestFeedBeginsWithTheHistory opens the page after an event.
func TestFeedBeginsWithTheHistory(t *testing.T) {
	n := newClosedNode(t, 5)
	pods := n.runtime.Pods()
	n.open(n.address())
	n.wait(`document.getElementById("count").textContent === "5"`)
	n.wait(n.exit(pods[0], 30))
	n.open(n.address())
	n.wait(feedHas("died 30"))
}

// TestLoadingUntilSynced opens the page while the first list hangs.
func TestLoadingUntilSynced(t *testing.T) {
	rt, err := simruntime.New(simruntime.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"ListPodSandbox", "StreamPodSandboxes"} {
		if _, err := rt.Inject(simruntime.Fault{RPC: call, Hang: true}); err != nil {
			t.Fatal(err)
		}
	}
	n := serveNode(t, rt, simruntime.Population{Pods: 5, Containers: 1})
	n.open(n.address())
	n.wait(live)
	for { // it is a problem later
		shown := eval[[]string](n, `[`+severity+`, ...["verdict", "count", "empty"].map(id => document.getElementById(id).textContent)]`)
		if shown[0] == "ok" || shown[0] == "loading" && !slices.Equal(shown[1:], []string{"loading", "", "loading"}) {
			t.Fatalf("the page says %q while the first list hangs", shown)
		}
		if shown[0] != "loading" {
			break
		}
	}
	rt.ClearAll()
	n.wait(severity + ` === "ok" && document.getElementById("count").textContent === "5"`)
}

// TestStoppedDaemonIsOld stops the process of the daemon: its connections stay open.
func TestStoppedDaemonIsOld(t *testing.T) {
	n := newNode(t, 5)
	n.wait(live)
	if err := syscall.Kill(n.daemon.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(n.daemon.PID(), syscall.SIGCONT) })
	n.wait(`document.getElementById("connection").dataset.state === "old" && document.body.classList.contains("old")`)
	n.wait(`document.getElementById("verdict").textContent.startsWith("no answer from the daemon for")`)
	if err := syscall.Kill(n.daemon.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	n.wait(live + ` && !document.body.classList.contains("old") && ` + severity + ` === "ok"`)
}

// TestStatesAreFilters clicks the chip of a state twice.
func TestStatesAreFilters(t *testing.T) {
	n := newNode(t, 10)
	n.exit(n.runtime.Pods()[4], 3)
	chip := `document.querySelector("#states [data-state=degraded]")`
	n.wait(chip + `?.textContent === "degraded 1"`)
	for _, shown := range []string{"1 of 10", "10"} {
		eval[any](n, chip+`.click()`)
		n.wait(fmt.Sprintf(`document.getElementById("count").textContent === %q`, shown))
	}
}
