package browser_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
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
	rt := simruntime.New(simruntime.Options{Seed: 1})
	rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", Hang: true})
	n := serveNode(t, rt, simruntime.Population{Pods: 5, Containers: 1})
	n.open(n.address())
	n.wait(live)
	for { // the wait for the list becomes a problem later
		shown := eval[[]string](n, `[`+severity+`, ...["verdict", "count", "empty"].map(id => document.getElementById(id).textContent)]`)
		if shown[0] == "ok" || shown[0] == "loading" && !slices.Equal(shown[1:], []string{"loading", "", "loading"}) {
			t.Fatalf("the page says %q while the first list hangs", shown)
		}
		if shown[0] != "loading" {
			break
		}
	}
	rt.ClearAll()
	// For a minute, the runtime is slow: its first list took long.
	n.wait(`["ok", "warning"].includes(` + severity + `) && document.getElementById("count").textContent === "5"`)
}

// TestStoppedDaemonIsOld stops the process of the daemon: its connections stay open.
func TestStoppedDaemonIsOld(t *testing.T) {
	n := newNode(t, 5)
	n.wait(live)
	kit.Must(t, syscall.Kill(n.daemon.PID(), syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(n.daemon.PID(), syscall.SIGCONT) })
	n.wait(`document.getElementById("connection").dataset.state === "old" && document.body.classList.contains("old")`)
	n.wait(`document.getElementById("verdict").textContent.startsWith("no answer from the daemon for")`)
	kit.Must(t, syscall.Kill(n.daemon.PID(), syscall.SIGCONT))
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
		const shown = () => store.visible().map(pod => pod.state).join() + (store.counts().get("ready")?.n ?? 0);
		store.addEvent({ type: "ContainerDied", podUID: "u1", observedAt: new Date().toISOString(), replayed: true });
		window.before = shown();
		store.applyPods({ states: ["ready"], pods: [] }, null, Date.now());
		window.after = shown();
	})`)
	n.wait("window.after")
	if got := eval[string](n, `before + ", " + after`); got != "0, gone0" {
		t.Errorf("the states are %q, want none, then gone", got)
	}
}

// TestStatesAreFilters ends one of the two containers of a pod, which is then neither ready nor
// green, and clicks the chip of its state twice.
func TestStatesAreFilters(t *testing.T) {
	rt := simruntime.New(simruntime.Options{Seed: 1})
	n := serveNode(t, rt, simruntime.Population{Pods: 10, Containers: 2}, "--events", "auto")
	n.open(n.address())
	n.wait(`document.getElementById("count").textContent === "10"`)
	pod := rt.Pods()[4]
	n.exit(pod, 3)
	chip := `document.querySelector("#states [data-state=notready]")`
	n.wait(chip + `?.textContent === "notready 1"`)
	cells := func(class string) string {
		return fmt.Sprintf(`document.querySelector("#rows [data-uid='%s'] .%s")`, pod.UID, class)
	}
	n.wait(cells("running") + `.textContent === "1/2"`)
	if state := eval[[]string](n, fmt.Sprintf(`[%s.textContent, %s.dataset.severity]`, cells("state"), cells("state"))); state[0] != "notready" || state[1] != "warning" {
		t.Errorf("the pod is shown as %q, want notready, as a warning", state)
	}
	for _, shown := range []string{"1 of 10", "10"} {
		eval[any](n, chip+`.click()`)
		n.wait(fmt.Sprintf(`document.getElementById("count").textContent === %q`, shown))
	}
	eval[any](n, chip+`.focus()`)
	n.exit(rt.Pods()[5], 4)
	n.wait(chip + `.textContent === "notready 2"`)
	if !eval[bool](n, `document.activeElement === `+chip) {
		t.Error("the chip has lost the focus because its number changed")
	}
}

// In a narrow window the rows are higher. They lie below each other in any window.
func TestRowsAfterTheWindowChanged(t *testing.T) {
	n := newNode(t, 5)
	for _, size := range [][2]int64{{400, 46}, {1280, 26}} {
		kit.Must(t, setSize(n.tab, size[0], 800, 1))
		n.wait(fmt.Sprintf(`(() => {
			const rows = [...document.querySelectorAll("#rows [role=row]:not([hidden])")].map(row => row.getBoundingClientRect()).sort((a, b) => a.top - b.top);
			return rows.length === 5 && rows.every((row, i) => row.height === %d && (i === 0 || Math.abs(row.top - rows[i - 1].bottom) < 1));
		})()`, size[1]))
	}
}
