package fleet_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// relay passes connections on to a server. It can cut them, or hold the data of clients.
type relay struct {
	url    string
	target string

	mu    sync.Mutex
	conns []net.Conn
	// held is locked while data of clients is held.
	held    sync.RWMutex
	holding atomic.Bool
	wait    sync.WaitGroup
	// trap, if set, makes the relay hold data from a text on.
	trap atomic.Pointer[trap]
	// lost is set by strand, for the connections that are open then. Later connections use another.
	lost *atomic.Bool
	// delay is the time.Duration of data in each direction.
	delay atomic.Int64
}

type trap struct {
	bytes []byte
	// sprung is closed once the relay holds data.
	sprung chan struct{}
}

func newRelay(t testing.TB, url string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	r := &relay{url: "nats://" + l.Addr().String(), target: strings.TrimPrefix(url, "nats://"), lost: new(atomic.Bool)}
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
		if r.holding.Load() {
			r.release()
		}
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
	lost := r.lost
	r.mu.Unlock()
	r.wait.Go(func() { r.copy(client, server, lost, client) })
	r.wait.Go(func() { r.copy(heldWriter{r, server}, client, lost, server) })
}

// copy passes data on until an end is closed, and then closes the other end.
func (r *relay) copy(to io.Writer, from io.Reader, lost *atomic.Bool, end io.Closer) {
	type data struct {
		due   time.Time
		bytes []byte
	}
	under := make(chan data, 10_000)
	r.wait.Go(func() {
		defer end.Close()
		for d := range under {
			time.Sleep(time.Until(d.due))
			if _, err := to.Write(d.bytes); err != nil {
				break
			}
		}
		for range under { // the reader ends with its connection
		}
	})
	defer close(under)
	for {
		chunk := make([]byte, 32<<10)
		n, err := from.Read(chunk)
		if n > 0 && !lost.Load() {
			under <- data{time.Now().Add(time.Duration(r.delay.Load())), chunk[:n]}
		}
		if err != nil {
			return
		}
	}
}

// strand makes the open connections stop passing data, without closing them.
func (r *relay) strand() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost.Store(true)
	r.lost = new(atomic.Bool)
}

type heldWriter struct {
	r  *relay
	to io.Writer
}

func (w heldWriter) Write(p []byte) (int, error) {
	if t := w.r.trap.Load(); t != nil {
		before, _, found := bytes.Cut(p, t.bytes)
		if found && w.r.trap.CompareAndSwap(t, nil) {
			if n, err := w.to.Write(before); err != nil {
				return n, err
			}
			w.r.hold()
			close(t.sprung)
			n, err := w.pass(p[len(before):])
			return len(before) + n, err
		}
	}
	return w.pass(p)
}

func (w heldWriter) pass(p []byte) (int, error) {
	w.r.held.RLock()
	defer w.r.held.RUnlock()
	return w.to.Write(p)
}

// cut ends all connections, with the data in flight.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// holdAt holds the data of clients from this text on, until release.
func (r *relay) holdAt(text string) (sprung <-chan struct{}) {
	t := &trap{[]byte(text), make(chan struct{})}
	r.trap.Store(t)
	return t.sprung
}

// hold keeps the data of clients until release, or the end of the test.
func (r *relay) hold()    { r.held.Lock(); r.holding.Store(true) }
func (r *relay) release() { r.holding.Store(false); r.held.Unlock() }
