package cri

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// process returns the process that listened at the socket when the last connection was made, with
// its present state; nil if it is not known, as outside the pid namespace of the host. Its threads
// are looked at only if something is wrong, because that takes a millisecond.
func (c *Client) process(wrong bool) *nodestate.Process {
	last := c.observed.last.Load()
	if last.pid == 0 || last.pid == os.Getpid() { // a test serves its own runtime
		return nil
	}
	proc := os.DirFS("/proc")
	p, _ := process.Read(proc, last.pid)
	if wrong && p != nil && p.State != "" && p.State != "T" && process.Waits(proc, last.pid) {
		p.State = "D"
	}
	return p
}

// Probe asks the runtime for its version: the cheapest call that shows that it answers. Only ctx
// bounds it.
func (c *Client) Probe(ctx context.Context) error {
	defer c.inFlight.begin(pleg.Call{Method: "Version"})()
	_, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	return c.wrapList("probe the runtime", err)
}

// silent reports whether the runtime accepted a connection and then said nothing, as a stopped
// process does. Only the text of grpc's error shows this.
func silent(err error) bool {
	text := status.Convert(err).Message()
	return status.Code(err) == codes.Unavailable && strings.Contains(text, "reading server preface") && !strings.Contains(text, "EOF") && !strings.Contains(text, "reset") &&
		!strings.Contains(text, "frame") // of a web server
}

// awaitAnswer waits until the runtime answers on a new connection, or refuses it, for ListTimeout at
// most. A runtime that accepts a connection and sends nothing hangs, although grpc ends each call at
// once, with the same error until it makes another connection.
func (c *Client) awaitAnswer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	defer c.inFlight.begin(pleg.Call{Method: "connect"})()
	for {
		if _, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{}); !silent(err) || backoff.Wait(ctx, reconnectMax) != nil {
			return
		}
	}
}

// inFlight contains the calls that have not returned. It is safe for concurrent use.
type inFlight struct {
	mu    sync.Mutex
	calls map[*pleg.Call]struct{}
}

// begin notes that a call begins. The caller must call end when it has returned.
func (f *inFlight) begin(c pleg.Call) (end func()) {
	c.Started = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[&c] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.calls, &c)
	}
}

// list returns the calls in flight, the oldest first.
func (f *inFlight) list() []pleg.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := make([]pleg.Call, 0, len(f.calls))
	for call := range f.calls {
		calls = append(calls, *call)
	}
	slices.SortFunc(calls, func(a, b pleg.Call) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Method, b.Method), cmp.Compare(a.ID, b.ID))
	})
	return calls
}
