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

// TestSleepIsNoSilence lets the clock jump between two questions, as after a sleep of the machine.
func TestSleepIsNoSilence(t *testing.T) {
	n := newNode(t, 5)
	n.wait(live)
	eval[any](n, `(() => {
		const [ask, clock] = [window.fetch, Date.now];
		window.blamed = false;
		window.ahead = 0;
		Date.now = () => clock() + ahead;
		new MutationObserver(() => { blamed ||= verdict.textContent.startsWith("no answer"); }).observe(verdict, { childList: true, characterData: true, subtree: true });
		window.fetch = async (...question) => {
			const answer = await ask(...question);
			if (question[0] === "/stages" && !ahead) {
				setTimeout(() => { ahead = 60e3; window.jumped = performance.now(); }, 100);
			}
			return answer;
		};
	})()`)
	n.wait(`window.jumped && performance.now() - jumped > 2500`)
	if eval[bool](n, "blamed") {
		t.Error("the page blames the daemon because the machine slept")
	}
}

// TestUnfetchedPodIsNotShown gives the page the event of a pod that may be long gone.
func TestUnfetchedPodIsNotShown(t *testing.T) {
	n := newNode(t, 1)
	eval[any](n, `import("/page/store.js").then(({ Store }) => {
		const store = new Store();
		const shown = () => store.visible().map(pod => pod.state).join() + store.counts().get("unknown");
		store.addEvent({ type: "ContainerDied", podUID: "u1", observedAt: new Date().toISOString(), replayed: true });
		window.before = shown();
		store.applyPods([], null, Date.now());
		window.after = shown();
	})`)
	n.wait("window.after")
	if got := eval[string](n, `before + ", " + after`); got != "0, gone0" {
		t.Errorf("the states are %q, want none, then gone", got)
	}
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
