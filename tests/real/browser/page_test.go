package browser_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// exit ends the container of a pod and returns a condition that is true once the feed
// shows it exactly once.
func (n *node) exit(pod *pleg.PodStatus, code int32) (shown string) {
	n.Helper()
	kit.Must(n, n.runtime.ExitContainer(pod.Containers[0].ID, code, ""))
	return feedHas(fmt.Sprintf("died %d", code))
}

func feedHas(what string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#events li b")].filter(b => b.textContent === %q).length === 1`, what)
}

// TestEventAppears measures how long it takes until an event is in the page.
func TestEventAppears(t *testing.T) {
	n := newNode(t, 15)
	var took []time.Duration
	for i, pod := range n.runtime.Pods() {
		began := time.Now()
		n.wait(n.exit(pod, int32(20+i)))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("an event is in the page after %v (median of %d; the last one after %v)", took[len(took)/2], len(took), took[len(took)-1])
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("the median is %v, want at most 1s", median)
	}
	n.wait(`[...document.querySelectorAll("#rows .state")].filter(e => e.checkVisibility() && e.textContent === "notready").length === 15`)
}

// TestNamesAreInert shows names that are HTML, scripts, or change the direction of text.
func TestNamesAreInert(t *testing.T) {
	n := newClosedNode(t, 1)
	hostile := `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`
	pod := n.runtime.AddPod(simruntime.PodSpec{
		Namespace: "\u202eshop", Name: hostile + "\u2066\u200b\x1b[31m\nnext",
		Containers: []pleg.ContainerStatus{{Name: `"><svg onload=window.hacked=1>` + strings.Repeat("long", 5000), Image: "javascript:window.hacked=1"}},
	})
	n.open(n.address())
	n.wait(`document.getElementById("count").textContent === "2"`)
	kit.Must(t, n.runtime.ExitContainer(pod.Containers[0].ID, 3, `<b onclick="window.hacked=1">`+"\u202e"))
	n.wait(`document.querySelector("#events li[data-uid]")`)
	n.slash()
	n.press("img")
	n.wait(`document.querySelector("#rows [role=row]:not([hidden]) .name")?.textContent.includes("onerror")`)
	n.press(kb.Enter)
	n.press(kb.ArrowDown)
	n.press(kb.Enter)
	n.wait(`!document.getElementById("details").hidden`)
	n.wait(`document.querySelector("#details table")?.textContent.includes("<b onclick")`)
	if eval[bool](n, `"hacked" in window || document.querySelectorAll("img, svg, body script, b[onclick]").length > 0`) {
		t.Error("a name has become HTML")
	}
	all := eval[string](n, `document.documentElement.outerHTML`)
	for _, r := range []string{"\u202e", "\u2066", "\u200b", "\x1b"} {
		if strings.Contains(all, r) {
			t.Errorf("the page has the character %U", []rune(r)[0])
		}
	}
	if !strings.Contains(all, "‹U+202E›shop") {
		t.Error("the page does not show the character U+202E by its number")
	}
	if len(all) > 60000 {
		t.Errorf("the page has %d characters: a long name is not shortened", len(all))
	}
}

// TestKeyboard uses keys in place of the mouse.
func TestKeyboard(t *testing.T) {
	n := newNode(t, 30)
	pods := n.runtime.Pods()
	n.slash()
	n.press(pods[7].Name)
	n.wait(`document.getElementById("count").textContent === "1 of 30"`)
	n.press(kb.ArrowDown) // from the filter into the table
	n.press(kb.ArrowDown)
	n.press(kb.Enter)
	n.wait(fmt.Sprintf(`document.querySelector("#details strong")?.textContent === %q`, pods[7].Namespace+"/"+pods[7].Name))
	n.wait(`document.activeElement.id === "details"`)
	id := string(pods[7].Containers[0].ID)
	for _, want := range []string{"crictl inspect " + id, "crictl logs " + id, "pgrep -fa " + string(pods[7].Sandboxes[0].ID)} {
		n.wait(fmt.Sprintf(`[...document.querySelectorAll("#details .command")].some(c => c.textContent === %q)`, want))
	}
	n.wait(`[...document.querySelectorAll("#details dd")].some(dd => /^\d+\.\d+\.\d+\.\d+$/.test(dd.textContent))`)
	n.wait(`/started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d/.test(document.querySelector("#details .more").textContent)`)
	n.press(kb.Escape)
	n.wait(`document.getElementById("details").hidden && document.activeElement.id === "grid"`)
	n.press(kb.Enter) // again, although nothing has changed
	if n.wait(`document.activeElement.id === "details"`); !eval[bool](n, `document.querySelector("#details table") !== null`) {
		t.Error("details that are opened again are empty")
	}
	n.press(kb.Escape)
	n.wait(`document.getElementById("details").hidden && document.activeElement.id === "grid"`)
	n.slash()
	n.press(kb.Escape)
	n.wait(`document.getElementById("count").textContent === "30"`)
	n.press(kb.End)
	n.wait(`document.getElementById(document.getElementById("grid").getAttribute("aria-activedescendant"))?.ariaRowIndex === "31"`)
	n.press(kb.Home)
	n.wait(`document.getElementById(document.getElementById("grid").getAttribute("aria-activedescendant"))?.ariaRowIndex === "2"`)

	n.press("p")
	n.exit(pods[1], 41)
	n.wait(`document.getElementById("unseen").textContent === "paused, 1 new"`)
	if shown := n.texts("#events li b"); slices.Contains(shown, "died 41") {
		t.Errorf("the paused feed shows %q", shown)
	}
	n.press("p")
	n.wait(feedHas("died 41"))
}

// TestSort sorts by restarts, in both directions, and back. The keys of a button are not those of the table.
func TestSort(t *testing.T) {
	n := newNode(t, 5)
	pod := n.runtime.Pods()[3]
	_, err := n.runtime.RestartContainer(pod.Containers[0].ID)
	kit.Must(t, err)
	// The rows are positioned: their order in the document does not matter.
	at := func(row string) string {
		return fmt.Sprintf(`document.querySelector("#rows [aria-rowindex='%s']:not([hidden])")?.dataset.uid === %q`, row, pod.UID)
	}
	n.wait(fmt.Sprintf(`document.querySelector("#rows [data-uid='%s'] .restarts")?.textContent === "1"`, pod.UID))
	eval[any](n, `document.getElementById("grid").focus()`)
	n.press(kb.ArrowDown)
	eval[any](n, `document.querySelector("[data-sort=restarts]").focus()`)
	n.press(kb.Enter)
	n.wait(at("2"))
	n.press(kb.Enter)
	n.wait(at("6"))
	n.wait(`document.querySelector("[data-sort=restarts]").parentElement.ariaSort === "descending"`)
	n.press(kb.Enter)
	n.wait(`document.querySelector("[data-sort=restarts]").parentElement.ariaSort === "none"`)
	if !eval[bool](n, `document.getElementById("details").hidden`) {
		t.Error("a key of a button opens the details")
	}
	n.do(chromedp.Click(fmt.Sprintf("#rows [data-uid='%s'] .name", pod.UID)))
	n.wait(fmt.Sprintf(`document.querySelector("#details strong")?.textContent === %q`, pod.Namespace+"/"+pod.Name))
}

// tooltips returns the tooltips in the lane of a pod, from left to right.
func (n *node) tooltips(uid pleg.PodUID) []string {
	n.Helper()
	return eval[[]string](n, fmt.Sprintf(`(() => {
		const lane = document.querySelector("#rows [data-uid='%s'] .lane");
		const { left, width } = lane.getBoundingClientRect();
		return [...new Set(Array.from({ length: Math.floor(width) }, (_, x) => {
			lane.dispatchEvent(new PointerEvent("pointermove", { clientX: left + x, bubbles: true }));
			return lane.title;
		}))];
	})()`, uid))
}

// TestHungPodIsNamed makes the inspection of one pod hang.
func TestHungPodIsNamed(t *testing.T) {
	n := newNode(t, 20, "--events", "off") // an event of a whole pod needs no inspection
	pod := n.runtime.Pods()[11]
	n.runtime.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: pod.UID, Hang: true})
	began := time.Now()
	_, err := n.runtime.RestartContainer(pod.Containers[0].ID)
	kit.Must(t, err)
	n.wait(fmt.Sprintf(`document.getElementById("verdict").textContent.startsWith(%q)`, pod.Namespace+"/"+pod.Name))
	t.Logf("the page names the pod after %v", time.Since(began).Round(100*time.Millisecond))
	n.wait(fmt.Sprintf(`document.querySelector("#rows [aria-rowindex='2']").dataset.uid === %q`, pod.UID))
	n.wait(fmt.Sprintf(`/^hung [0-9.]+s$/.test(document.querySelector("#rows [data-uid='%s'] .state").textContent)`, pod.UID))
	n.wait(`(() => { // the bar of the hang ends at the right of its lane
		const [x, y] = [lanes.width - 12 * devicePixelRatio, 13 * devicePixelRatio];
		const [red, , blue, alpha] = lanes.getContext("2d").getImageData(x, y, 1, 1).data;
		return alpha > 0 && red > blue;
	})()`)
	name := regexp.QuoteMeta(pod.Namespace + "/" + pod.Name)
	for _, want := range []string{`^$`, `^\d\d:\d\d:\d\d ` + name + ` \S+ started$`, `^` + name + ` hangs since \d\d:\d\d \(.*s.*\)$`} {
		if got := n.tooltips(pod.UID); !slices.ContainsFunc(got, regexp.MustCompile(want).MatchString) {
			t.Errorf("the tooltips are %q, want %s", got, want)
		}
	}
	eval[any](n, `window.axis = () => document.querySelector("#axis canvas").toDataURL(); window.before = axis(); document.querySelector("#span [value='600']").click()`)
	n.wait(`before !== axis()`)
	n.runtime.ClearAll()
	n.wait(severity + ` === "ok"`)
}

// The title of a tab in the background, where nothing is drawn, follows the verdict.
func TestTitleOfATabInTheBackground(t *testing.T) {
	n := newNode(t, 3, "--events", "off")
	eval[any](n, `window.requestAnimationFrame = () => 0`)
	pod := n.runtime.Pods()[0]
	n.runtime.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: pod.UID, Hang: true})
	_, err := n.runtime.RestartContainer(pod.Containers[0].ID)
	kit.Must(t, err)
	n.wait(`document.title.startsWith("● ")`)
}

// A pod that changes while it is fetched is fetched again, and so is one whose request failed.
func TestPodsAreFetchedAgain(t *testing.T) {
	rt := simruntime.New(simruntime.Options{Seed: 1})
	n := serveNode(t, rt, simruntime.Population{Pods: 3, Containers: 2}, "--events", "auto")
	n.open(n.address())
	n.wait(`document.getElementById("count").textContent === "3"`)
	eval[any](n, `(() => {
		const ask = window.fetch;
		window.fetch = async (...question) => {
			const answer = await ask(...question);
			if (window.hold && question[0].startsWith("/pods?pod=")) {
				await new Promise(resolve => { window.release = resolve; });
			}
			if (window.fail && question[0].startsWith("/pods?pod=")) {
				window.fail = false;
				throw new TypeError("the connection was lost");
			}
			return answer;
		};
	})()`)
	pods := rt.Pods()
	running := func(pod *pleg.PodStatus, want string) string {
		return fmt.Sprintf(`document.querySelector("#rows [data-uid='%s'] .running")?.textContent === %q`, pod.UID, want)
	}
	n.exit(pods[2], 29)
	n.wait(running(pods[2], "1/2")) // now all pods have been fetched
	eval[any](n, `window.hold = true`)
	n.wait(n.exit(pods[0], 30))
	n.wait(`window.release`)
	kit.Must(t, rt.ExitContainer(pods[0].Containers[1].ID, 31, ""))
	n.wait(feedHas("died 31"))
	eval[any](n, `window.hold = false; release()`)
	n.wait(running(pods[0], "0/2"))
	eval[any](n, `window.fail = true`)
	n.wait(n.exit(pods[1], 32))
	n.wait(running(pods[1], "1/2"))
	if eval[bool](n, `window.fail`) {
		t.Error("no request has failed, which proves nothing")
	}
}
