package browser_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// wireTap forwards connections to the program until it is cut.
type wireTap struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	done  sync.WaitGroup
}

func newWireTap(t *testing.T, target string) *wireTap {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wireTap{listener: l, target: target, conns: make(map[net.Conn]bool)}
	w.done.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.setCut(true)
		w.done.Wait()
	})
	return w
}

func (w *wireTap) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := new(net.Dialer).DialContext(context.Background(), "tcp", w.target)
		if err != nil || !w.add(conn, out) {
			_ = conn.Close()
			if err == nil {
				_ = out.Close()
			}
			continue
		}
		for _, pair := range [][2]net.Conn{{conn, out}, {out, conn}} {
			w.done.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
				_ = pair[1].Close()
			})
		}
	}
}

// add returns false while the wire is cut.
func (w *wireTap) add(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
	return !w.cut
}

// setCut ends all connections and refuses others, or lets them pass again.
func (w *wireTap) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for c := range w.conns {
		_ = c.Close()
		delete(w.conns, c)
	}
}

const live = `document.getElementById("connection").dataset.state === "live"`

// TestDroppedConnectionResumes cuts the connection twice; meanwhile containers exit.
func TestDroppedConnectionResumes(t *testing.T) {
	n := newClosedNode(t, 20)
	wire := newWireTap(t, n.address())
	n.open(wire.listener.Addr().String())
	n.wait(`document.getElementById("count").textContent === "20"`)
	pods := n.runtime.Pods()
	for round := range 2 {
		wire.setCut(true)
		n.wait(`document.getElementById("connection").dataset.state === "lost"`)
		var shown []string
		for i := range 10 {
			shown = append(shown, n.exit(pods[10*round+i], int32(30+10*round+i)))
		}
		wire.setCut(false)
		n.wait(live)
		for _, condition := range shown {
			n.wait(condition)
		}
	}
	if n.wait(feedHas("died 30")); eval[bool](n, `document.querySelector("#events li[data-kind=Gap]") !== null`) {
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
	if err := n.runtime.RemovePod(pods[1].UID); err != nil {
		t.Fatal(err)
	}
	n.start(address)
	n.wait(live)
	n.wait(`document.querySelector("#events li[data-kind=Gap]")?.textContent.includes("the daemon was restarted")`)
	n.wait(`document.getElementById("count").textContent === "9"`)
	n.wait(severity + ` === "ok"`)
	n.wait(n.exit(pods[2], 31))
}

// TestShortHistoryIsAGap lets the history of the daemon be shorter than an outage.
func TestShortHistoryIsAGap(t *testing.T) {
	n := newClosedNode(t, 20, "--history", "4")
	wire := newWireTap(t, n.address())
	n.open(wire.listener.Addr().String())
	n.wait(`document.getElementById("count").textContent === "20"`)
	wire.setCut(true)
	n.wait(`document.getElementById("connection").dataset.state === "lost"`)
	for i, pod := range n.runtime.Pods()[:10] {
		n.exit(pod, int32(30+i))
	}
	wire.setCut(false)
	n.wait(`document.querySelector("#events li[data-kind=Gap]")?.textContent.includes("the history is too short")`)
	n.wait(fmt.Sprintf(`[...document.querySelectorAll("#rows .state")].filter(e => e.textContent === "degraded").length === %d`, 10))
}
