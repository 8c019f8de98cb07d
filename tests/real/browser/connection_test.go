package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// wire forwards requests to the program until it is cut.
type wire struct {
	*httptest.Server
	cut atomic.Bool
	// busy is how many requests for events are refused.
	busy atomic.Int32
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
	w := &wire{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if w.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/events" && w.busy.Add(-1) >= 0 {
			http.Error(answer, "too many event streams", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(answer, r)
	}))
	t.Cleanup(func() {
		w.setCut(true)
		w.Close()
	})
	return w
}

// setCut ends all connections and refuses others, or lets them pass again.
func (w *wire) setCut(cut bool) {
	if w.cut.Store(cut); cut {
		w.CloseClientConnections()
	}
}

const live = `document.getElementById("connection").dataset.state === "live"`

// TestDroppedConnectionResumes cuts the connection twice; meanwhile containers exit. The daemon is busy at first, and the browser
// itself does not ask again.
func TestDroppedConnectionResumes(t *testing.T) {
	n := newClosedNode(t, 20)
	cable := newWire(t, n.address())
	n.open(cable.Listener.Addr().String())
	n.wait(`document.getElementById("count").textContent === "20"`)
	pods := n.runtime.Pods()
	for round := range 2 {
		cable.setCut(true)
		n.wait(`document.getElementById("connection").dataset.state === "lost"`)
		var shown []string
		for i := range 10 {
			shown = append(shown, n.exit(pods[10*round+i], int32(30+10*round+i)))
		}
		cable.busy.Store(1)
		cable.setCut(false)
		n.wait(live)
		for _, condition := range shown {
			n.wait(condition)
		}
	}
	if n.wait(feedHas("died 30")); eval[bool](n, `document.querySelector("#events li[data-type=Gap]") !== null`) {
		t.Error("the page shows a Gap although the daemon had all events")
	}
}

// TestRestartIsAGap restarts the daemon: its events since then are unknown.
func TestRestartIsAGap(t *testing.T) {
	n := newNode(t, 10)
	pods := n.runtime.Pods()
	n.wait(n.exit(pods[0], 30))
	address := n.address()
	n.daemon.Kill()
	n.wait(`document.getElementById("verdict").textContent.startsWith("no answer from the daemon for")`)
	kit.Must(t, n.runtime.RemovePod(pods[1].UID))
	n.start(address)
	n.wait(live)
	n.wait(`document.querySelector("#events li[data-type=Gap]")?.textContent.includes("the daemon was restarted")`)
	n.wait(`document.getElementById("count").textContent === "9"`)
	n.wait(severity + ` === "ok"`)
	n.wait(n.exit(pods[2], 31))
}

// TestShortHistoryIsAGap lets the history of the daemon be shorter than an outage.
func TestShortHistoryIsAGap(t *testing.T) {
	n := newClosedNode(t, 20, "--history", "4")
	cable := newWire(t, n.address())
	n.open(cable.Listener.Addr().String())
	n.wait(`document.getElementById("count").textContent === "20"`)
	cable.setCut(true)
	n.wait(`document.getElementById("connection").dataset.state === "lost"`)
	for i, pod := range n.runtime.Pods()[:10] {
		n.exit(pod, int32(30+i))
	}
	cable.setCut(false)
	n.wait(`document.querySelector("#events li[data-type=Gap]")?.textContent.includes("the history no longer has them")`)
	n.wait(fmt.Sprintf(`[...document.querySelectorAll("#rows .state")].filter(e => e.textContent === "notready").length === %d`, 10))
}
