//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// socket is the path at which the DaemonSet serves events to other programs of the node.
const socket = "/run/pleg-pipeline/pleg.sock"

// container is the state of one container or sandbox according to the events.
type container struct {
	pod                    pleg.PodUID
	podName, name          string
	sandbox, found         bool // found: its first event is of the state at the start
	started, died, removed int
	exit                   *int32
}

// history contains the events that a client of the daemon has received. The client reconnects and
// resumes by itself when the daemon restarts.
type history struct {
	mu     sync.Mutex
	stream promises.Stream
	err    error
}

// follow watches the daemon until the test ends.
func follow(t *testing.T) *history {
	t.Helper()
	h := &history{stream: promises.Stream{Replay: true}}
	c, err := client.New(socket, client.Options{Disconnected: h.disconnected})
	kit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range c.Watch(ctx, pleg.SubscribeOptions{Name: "e2e", Replay: true}) { //nolint:contextcheck // Fresh needs no context: it does not wait
			h.apply(ev, err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = c.Close()
	})
	process.Eventually(t, "first Synced", func(context.Context) error {
		if h.marks(pleg.Synced) == 0 {
			return fmt.Errorf("no Synced")
		}
		return nil
	})
	return h
}

func (h *history) disconnected(error, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stream.Breaks = append(h.stream.Breaks, len(h.stream.Events))
}

func (h *history) apply(ev pleg.Event, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.err = err
		return
	}
	h.stream.Add(ev)
}

// marks returns how many marks of a type came.
func (h *history) marks(of pleg.EventType) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range h.stream.Events {
		if ev.Type == of {
			n++
		}
	}
	return n
}

// containers returns the state according to the events since the last Gap.
func (h *history) containers() map[pleg.ContainerID]*container {
	all := make(map[pleg.ContainerID]*container)
	for _, ev := range h.stream.Events {
		if ev.Type == pleg.Gap {
			clear(all)
		}
		if ev.ContainerID == "" {
			continue
		}
		c := all[ev.ContainerID]
		if c == nil {
			c = &container{pod: ev.PodUID, podName: ev.PodNamespace + "/" + ev.PodName, name: ev.ContainerName, sandbox: ev.Sandbox, found: ev.Replayed}
			all[ev.ContainerID] = c
		}
		switch ev.Type {
		case pleg.ContainerStarted:
			c.started++
		case pleg.ContainerDied:
			c.died++
			c.exit = ev.ExitCode
		case pleg.ContainerRemoved:
			c.removed++
		}
	}
	return all
}

// differences compares the events with the watch and with the promises. Both must be at rest. full
// means that no Gap came: the events must then contain every step.
func differences(tr *truth, h *history, full bool) []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	var diffs []string
	if err := errors.Join(tr.err, h.err, h.stream.Check()); err != nil {
		diffs = append(diffs, err.Error())
	}
	containers := h.containers()
	created := make(map[pleg.PodUID]map[string]int32) // the containers of each name
	for id, c := range containers {
		p := tr.pods[c.pod]
		switch {
		case p == nil && c.found && c.removed > 0: // the pod was deleted just before the watch began
			continue
		case p == nil:
			diffs = append(diffs, fmt.Sprintf("%s has events and is not in the watch", c.podName))
			continue
		case p.deleted && c.removed == 0:
			diffs = append(diffs, fmt.Sprintf("%s is deleted, and %s %s was not removed", p.name, c.name, id))
		case c.started+c.died == 0:
			diffs = append(diffs, fmt.Sprintf("%s: %s %s was removed and neither started nor died", p.name, c.name, id))
		}
		if created[c.pod] == nil {
			created[c.pod] = make(map[string]int32)
		}
		if !c.sandbox {
			created[c.pod][c.name]++
		}
	}
	for uid, p := range tr.pods {
		if full || !p.deleted {
			diffs = append(diffs, p.differences(containers, created[uid], full)...)
		}
	}
	return diffs
}

// differences compares one pod. created counts its containers by name.
func (p *apiPod) differences(containers map[pleg.ContainerID]*container, created map[string]int32, full bool) []string {
	var diffs []string
	for id := range p.running {
		if c := containers[id]; full && c == nil {
			diffs = append(diffs, fmt.Sprintf("%s: container %s ran and has no event", p.name, id))
		} else if _, ended := p.exits[id]; !ended && !p.deleted && (c == nil || c.died > 0) {
			diffs = append(diffs, fmt.Sprintf("%s: container %s runs, and its events say %+v", p.name, id, c))
		}
	}
	for id, code := range p.exits {
		switch c := containers[id]; {
		case c == nil && full:
			diffs = append(diffs, fmt.Sprintf("%s: container %s ended and has no event", p.name, id))
		case c == nil:
		case c.died != 1 || c.exit != nil && *c.exit != code:
			diffs = append(diffs, fmt.Sprintf("%s: container %s ended with %d, and its events say %+v", p.name, id, code, *c))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.restarts)) {
		// The last status of a deleted pod may be older than its last container.
		if n := p.restarts[name] + 1; full && (created[name] < n || created[name] > n && !p.deleted) {
			diffs = append(diffs, fmt.Sprintf("%s: %d restarts of %s, and %d containers in the events", p.name, n-1, name, created[name]))
		}
	}
	return diffs
}
