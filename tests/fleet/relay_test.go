package fleet_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// relay passes connections on to a server. It can cut them, or hold what clients send.
type relay struct {
	url    string
	target string

	mu    sync.Mutex
	conns []net.Conn
	// held is locked while data of clients is held.
	held sync.RWMutex
	wait sync.WaitGroup
	// trap is what makes the relay hold data from itself on.
	trap atomic.Pointer[trap]
}

type trap struct {
	bytes []byte
	// sprung is closed once the relay holds data.
	sprung chan struct{}
}

func newRelay(t *testing.T, url string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "nats://" + l.Addr().String(), target: strings.TrimPrefix(url, "nats://")}
	r.wait.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			r.pass(client)
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.cut()
		r.wait.Wait()
	})
	return r
}

func (r *relay) pass(client net.Conn) {
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		client.Close()
		return
	}
	r.mu.Lock()
	r.conns = append(r.conns, client, server)
	r.mu.Unlock()
	r.wait.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	})
	r.wait.Go(func() {
		defer server.Close()
		_, _ = io.Copy(heldWriter{r, server}, client)
	})
}

type heldWriter struct {
	r  *relay
	to io.Writer
}

func (w heldWriter) Write(p []byte) (int, error) {
	if t := w.r.trap.Load(); t != nil && bytes.Contains(p, t.bytes) && w.r.trap.CompareAndSwap(t, nil) {
		w.r.hold()
		close(t.sprung)
	}
	w.r.held.RLock()
	defer w.r.held.RUnlock()
	return w.to.Write(p)
}

// cut ends all connections, with whatever is under way.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// holdAt holds what clients send from the next data with this text on, until release.
func (r *relay) holdAt(text string) (sprung <-chan struct{}) {
	t := &trap{[]byte(text), make(chan struct{})}
	r.trap.Store(t)
	return t.sprung
}

// hold keeps what clients send until release.
func (r *relay) hold()    { r.held.Lock() }
func (r *relay) release() { r.held.Unlock() }
