package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// startsPeriod is the time between two looks at containers that wait for their start,
	// startsWithin the longest start without the pull of an image.
	startsPeriod, startsWithin = 3 * time.Second, 20 * time.Second
	// listenFor is how long the events of the runtime are followed, unless one comes or the runtime
	// proves silent before. listenAgain is the time to the next stream.
	listenFor, listenAgain = 5 * time.Minute, time.Minute
	// silentChanges are changes of which the runtime announces none within unreadFor.
	silentChanges = 2
)

// listener finds a runtime that waits for a client that runs and does not read its events. gRPC stops
// the runtime before the queue of the kernel fills, so that no socket shows it: the lists change, but
// the runtime announces nothing to any client. The events are followed only while starts seem to
// hang.
type listener struct {
	o       Options
	runtime runtimeapi.RuntimeServiceClient
	pods    cache.Reader
	publish func(*pleg.Trouble)
	next    time.Time // of the next stream
}

// look follows the events if a start has waited for long.
func (l *listener) look(ctx context.Context, now time.Time) {
	if now.Before(l.next) || !startsWait(l.pods.List(), now) {
		return
	}
	l.listen(ctx)
	l.publish(nil)
	l.next = time.Now().Add(listenAgain)
}

// startsWait reports whether a container was created and has not started, or a sandbox is ready and
// no container was created in its pod.
func startsWait(pods []cache.Entry, now time.Time) bool {
	late := func(created time.Time) bool { return !created.IsZero() && now.Sub(created) >= startsWithin }
	return slices.ContainsFunc(pods, func(e cache.Entry) bool {
		if e.Last == nil {
			return false
		}
		created := func(c *pleg.ContainerStatus) bool { return c.State == pleg.StateCreated && late(c.CreatedAt) }
		ready := func(s *pleg.SandboxStatus) bool { return s.Ready && late(s.CreatedAt) }
		return slices.ContainsFunc(e.Last.Containers, created) || len(e.Last.Containers) == 0 && slices.ContainsFunc(e.Last.Sandboxes, ready)
	})
}

// listen follows the events until the runtime announces one.
func (l *listener) listen(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if version, err := l.runtime.Version(ctx, &runtimeapi.VersionRequest{}); err != nil || !waitsForClients(version) {
		return
	}
	stream, err := l.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		_, _ = stream.Recv() // an event, or the end of the stream
	}()
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	known, opened := states(l.pods.List()), time.Now()
	var changes int
	var first time.Time
	silent := false
	for {
		select {
		case <-heard:
			return
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			current := states(l.pods.List())
			if n := differences(known, current); n > 0 {
				changes += n
				if first.IsZero() {
					first = now
				}
			}
			known = current
			switch {
			case silent:
			case changes >= silentChanges && now.Sub(first) >= unreadFor:
				silent = true
				l.publish(l.trouble(first, changes))
			case now.Sub(opened) >= listenFor:
				return
			}
		}
	}
}

// waitsForClients reports whether the runtime waits for each client of its events: containerd does
// since 2.0. An older containerd sends each event to one client, which may not be this program.
func waitsForClients(v *runtimeapi.VersionResponse) bool {
	return v.GetRuntimeName() == "containerd" && !strings.HasPrefix(strings.TrimPrefix(v.GetRuntimeVersion(), "v"), "1.")
}

func (l *listener) trouble(since time.Time, changes int) *pleg.Trouble {
	t := &pleg.Trouble{
		Cause: string(verdict.ClientNotReading), Problem: true, Since: since, Subject: "a client", What: "does not read the events of the runtime",
		Detail: fmt.Sprintf(": starts wait, and none of %d changes was announced", changes),
	}
	if names := clients(l.o); len(names) > 0 {
		t.Detail += "; connected are " + strings.Join(names, ", ")
	}
	return t
}

// states returns the state of each container and sandbox.
func states(pods []cache.Entry) map[pleg.ContainerID]pleg.State {
	all := make(map[pleg.ContainerID]pleg.State)
	for _, e := range pods {
		if e.Last == nil {
			continue
		}
		for _, c := range e.Last.Containers {
			all[c.ID] = c.State
		}
		for _, s := range e.Last.Sandboxes {
			all[s.ID] = pleg.StateExited
			if s.Ready {
				all[s.ID] = pleg.StateRunning
			}
		}
	}
	return all
}

// differences returns how many containers and sandboxes are new, gone or in another state.
func differences(before, after map[pleg.ContainerID]pleg.State) (n int) {
	for id, state := range after {
		if was, ok := before[id]; !ok || was != state {
			n++
		}
		delete(before, id)
	}
	return n + len(before)
}
