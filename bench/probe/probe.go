// Package probe measures a candidate inside its client process: the kubelet's own
// generator or the pipeline. All candidates use it, so that it costs each of them the
// same. It has no dependencies, so that the module with Kubernetes in it can import it.
//
// A [Child] is such a process, as the harness sees it. The protocol is one JSON object
// per line on standard input, and one line of answer for each on standard output.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"sync"
	"time"
)

// Event is an event as a candidate delivered it.
type Event struct {
	Type string
	// ID is that of the container or sandbox.
	ID string
	// At is when the relist that saw the change began.
	At time.Time
}

// Candidate runs until ctx ends. It calls emit for each event as it arrives, from
// one goroutine.
type Candidate func(ctx context.Context, emit func(Event)) error

// Serve handles the commands of in until in ends. It returns the error of the candidate or
// of the protocol.
func Serve(ctx context.Context, candidate Candidate, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &probe{ended: make(chan error, 1)}
	p.expect(nil)
	err := serve(in, out, func(c Command) Report {
		switch c.Do {
		case StartCandidate:
			p.started = true
			go func() { p.ended <- candidate(ctx, p.emit) }()
		case ExpectEvents:
			runtime.GC()
			p.expect(c.Want)
		case WaitForEvents:
			return p.wait(time.Duration(c.TimeoutMS) * time.Millisecond)
		default:
			return Report{Err: fmt.Sprintf("unknown command %q", c.Do)}
		}
		return Report{}
	})
	cancel()
	if p.started {
		if ended := <-p.ended; !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
	}
	return err
}

type probe struct {
	started bool
	// ended receives the candidate's error.
	ended chan error

	mu sync.Mutex // guards the window
	window
}

// window has the events since the last expect.
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

func (p *probe) wait(timeout time.Duration) Report {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	select {
	case <-done:
	case <-time.After(timeout):
	case err := <-p.ended:
		p.ended <- err
		return Report{Err: fmt.Sprintf("the candidate has ended: %v", err)}
	}
	return p.report()
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
