// Package probe measures a candidate inside its client process: the kubelet's own generator or the
// pipeline. All candidates use it: it costs each of them the same. It depends on no other package,
// so that the module with Kubernetes can import it.
//
// A [Child] is such a client process, as the harness sees it. The protocol is JSON-RPC on standard
// input and output.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/rpc"
	"net/rpc/jsonrpc"
	"runtime"
	"sync"
	"time"
)

// Event is an event as a candidate delivered it.
type Event struct {
	Type string
	// ID is that of the container or sandbox.
	ID string
	// At is the time at which the relist that saw the change began.
	At time.Time
}

// Candidate runs until ctx ends. It calls emit for each event as it arrives, from
// one goroutine.
type Candidate func(ctx context.Context, emit func(Event)) error

// service is the name of a probe to its callers.
const service = "probe"

// Serve answers the calls that it reads from in, until in ends. It returns the error of the
// candidate.
func Serve(ctx context.Context, candidate Candidate, in io.ReadCloser, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &probe{ended: make(chan error, 1)}
	p.start = func() { p.ended <- candidate(ctx, p.emit) }
	p.expect(nil)
	server := rpc.NewServer()
	if err := server.RegisterName(service, p); err != nil {
		return fmt.Errorf("serve the probe: %w", err)
	}
	server.ServeCodec(jsonrpc.NewServerCodec(struct {
		io.ReadCloser
		io.Writer
	}{in, out}))
	cancel()
	if p.started {
		if err := <-p.ended; !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// probe answers one call at a time.
type probe struct {
	start   func() // runs the candidate
	started bool
	// ended receives the candidate's error.
	ended chan error

	mu sync.Mutex // guards the window
	window
}

// window contains the events since the last expect.
type window struct {
	began mark
	want  map[string]int
	// lacking is the number of wanted events that have not arrived.
	lacking int
	done    chan struct{} // closed when lacking is 0

	relist time.Time
	seen   map[string]*tally
	log    []Arrival
}

type tally struct {
	count int
	last  time.Time
}

// Start starts the candidate.
func (p *probe) Start(struct{}, *struct{}) error {
	p.started = true
	go p.start()
	return nil
}

// Expect begins a window of measurement, which ends with this number of events of each type.
func (p *probe) Expect(want map[string]int, _ *struct{}) error {
	runtime.GC()
	p.expect(want)
	return nil
}

// Wait answers when the window contains its events, or after the timeout.
func (p *probe) Wait(timeout time.Duration, r *Report) error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	select {
	case <-done:
	case <-time.After(timeout):
	case err := <-p.ended:
		p.ended <- err
		return fmt.Errorf("the candidate has ended: %w", err)
	}
	*r = p.report()
	return nil
}

func (p *probe) expect(want map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window = window{
		want: maps.Clone(want), began: now(),
		seen: make(map[string]*tally), done: make(chan struct{}),
	}
	for _, n := range want {
		p.lacking += n
	}
	if p.lacking == 0 {
		close(p.done)
	}
}

func (p *probe) emit(e Event) {
	at := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.relist.IsZero() || e.At.Before(p.relist) {
		p.relist = e.At
	}
	t := p.seen[e.Type]
	if t == nil {
		t = new(tally)
		p.seen[e.Type] = t
	}
	t.count++
	t.last = at
	p.log = append(p.log, Arrival{Type: e.Type, ID: e.ID, UnixNS: at.UnixNano()})
	if t.count <= p.want[e.Type] {
		if p.lacking--; p.lacking == 0 {
			close(p.done)
		}
	}
}

func (p *probe) report() Report {
	ended := now()
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Report{
		Done: p.lacking == 0, Usage: ended.since(p.began), Log: p.log, Seen: make(map[string]Seen, len(p.seen)),
	}
	for name, t := range p.seen {
		r.Seen[name] = Seen{Count: t.count, LastMS: float64(t.last.Sub(p.relist)) / float64(time.Millisecond)}
	}
	return r
}
