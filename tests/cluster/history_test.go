//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// socket is where the DaemonSet serves events to other programs of the node.
const socket = "/run/pleg-pipeline/pleg.sock"

// container is what the events have said of one container or sandbox.
type container struct {
	pod                    pleg.PodUID
	podName, name          string
	sandbox                bool
	started, died, removed int
	exit                   *int32
}

// history is what a client of the daemon has received. The client reconnects and
// resumes by itself when the daemon restarts.
type history struct {
	mu         sync.Mutex
	containers map[pleg.ContainerID]*container
	wrong      []string // events that contradict earlier ones
	gaps, sync int
	err        error
}

// follow watches the daemon until the test ends.
func follow(t *testing.T) *history {
	t.Helper()
	c, err := client.New(socket, client.Options{})
	must(t, err)
	h := &history{containers: make(map[pleg.ContainerID]*container)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range c.Watch(ctx, client.WatchOptions{Name: "e2e", Replay: true}) {
			h.apply(ev, err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = c.Close()
	})
	await(t, "first Synced", func(context.Context) error {
		if _, synced := h.marks(); synced == 0 {
			return fmt.Errorf("no Synced")
		}
		return nil
	})
	return h
}

func (h *history) marks() (gaps, synced int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gaps, h.sync
}

func (h *history) apply(ev pleg.Event, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.err = err
	case ev.Type == pleg.Gap:
		h.gaps++
		clear(h.containers)
	case ev.Type == pleg.Synced:
		h.sync++
	case ev.Type == pleg.ContainerStarted || ev.Type == pleg.ContainerDied || ev.Type == pleg.ContainerRemoved:
		h.step(ev)
	case ev.Type == pleg.PodSync && ev.Missed > 0:
		h.wrong = append(h.wrong, fmt.Sprintf("%s: %d events were discarded", ev.PodName, ev.Missed))
	}
}

func (h *history) step(ev pleg.Event) {
	c := h.containers[ev.ContainerID]
	if c == nil {
		c = &container{pod: ev.PodUID, podName: ev.PodNamespace + "/" + ev.PodName, name: ev.ContainerName, sandbox: ev.Sandbox}
		h.containers[ev.ContainerID] = c
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
	late := ev.Type == pleg.ContainerStarted && c.died > 0 || ev.Type != pleg.ContainerRemoved && c.removed > 0
	if late || c.started > 1 || c.died > 1 || c.removed > 1 {
		h.wrong = append(h.wrong, fmt.Sprintf("%s in %s: %s at %d comes after %+v", ev.ContainerName, c.podName, ev.Type, ev.Seq, *c))
	}
}

// differences compares the events with the watch. Both must be at rest. full says that
// the events have no Gap, so that they must have every step.
func differences(tr *truth, h *history, full bool) []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	diffs := slices.Clone(h.wrong)
	if tr.err != nil || h.err != nil {
		diffs = append(diffs, fmt.Sprint(tr.err, h.err))
	}
	created := make(map[pleg.PodUID]map[string]int32) // the containers of each name
	for id, c := range h.containers {
		p := tr.pods[c.pod]
		switch {
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
			diffs = append(diffs, p.differences(h.containers, created[uid], full)...)
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
