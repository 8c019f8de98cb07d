// Package pidfd learns from the kernel that the first process of a container has ended, and
// requests a relist of the pod: within milliseconds, where the runtime's event may take 150 ms
// and does not come while the runtime is down.
//
// It is a hint like a CRI event ([pleg.Hint]): events of the pipeline say what the runtime
// says. [Options].Ended has what the kernel said. Without the pid namespace of the host, no
// process is found and nothing is watched.
package pidfd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// firstWait is the time between the first two lists of a pod whose process has ended. It
	// doubles up to lastWait, until the runtime agrees or for agreeWithin.
	firstWait   = 10 * time.Millisecond
	lastWait    = time.Second
	agreeWithin = 10 * time.Second
)

// Pipeline is a pipeline.Pipeline.
type Pipeline interface {
	node.Pipeline
	RequestRelist(uid pleg.PodUID)
}

// Options configure [Run]. The zero value is ready to use.
type Options struct {
	// Proc and Cgroup are where proc and the cgroups are mounted. If empty, /proc and
	// /sys/fs/cgroup.
	Proc, Cgroup string
	// Ended, if not nil, is called for each end, by any goroutine, also while the runtime is
	// down. It must return soon.
	Ended func(End)
	// Logger logs which containers are watched, at debug level. If nil, nothing is logged.
	Logger *slog.Logger
}

// End is the end of a container as the kernel saw it.
type End struct {
	// Container is what was known of the container while it ran.
	Container lookup.Container
	At        time.Time
	// ExitCode is the exit code of the first process, 128 plus the signal's number if a signal
	// ended it; nil if the kernel does not report it, as before Linux 6.15.
	ExitCode *int32
}

// Run watches the first process of each container until ctx ends, and then returns
// nil, or until the pipeline stops, and then returns the error of its Watch. Each takes a goroutine and a file descriptor.
func Run(ctx context.Context, p Pipeline, o Options) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &watcher{pipeline: p, options: o, watched: make(map[pleg.PodUID]map[pleg.ContainerID]context.CancelFunc)}
	defer w.processes.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for ev, err := range p.Watch(ctx, pleg.SubscribeOptions{Name: "pidfd", Replay: true, Statuses: true, Filter: pleg.Filter{OmitSandboxes: true}}) {
		switch {
		case ctx.Err() != nil: // the pipeline may have stopped for the same reason
			return nil
		case err != nil:
			return err
		case ev.Type == pleg.Gap:
			for uid := range w.watched {
				w.compare(ctx, &pleg.PodStatus{UID: uid})
			}
		case ev.Status != nil:
			w.compare(ctx, ev.Status)
		}
	}
	return nil
}

// watcher is owned by Run, except for the goroutines in processes.
type watcher struct {
	pipeline  Pipeline
	options   Options
	processes sync.WaitGroup
	watched   map[pleg.PodUID]map[pleg.ContainerID]context.CancelFunc
}

// compare watches the containers of a pod that run, and no others.
func (w *watcher) compare(ctx context.Context, s *pleg.PodStatus) {
	watched := w.watched[s.UID]
	for id, stop := range watched {
		if c := s.Container(id); c == nil || c.State != pleg.StateRunning {
			stop()
			delete(watched, id)
		}
	}
	for _, c := range s.Containers {
		if c.State != pleg.StateRunning || watched[c.ID] != nil {
			continue
		}
		if watched == nil {
			watched = make(map[pleg.ContainerID]context.CancelFunc)
			w.watched[s.UID] = watched
		}
		until, stop := context.WithCancel(ctx)
		watched[c.ID] = stop
		w.processes.Go(func() { w.watch(until, c.ID) })
	}
	if len(watched) == 0 {
		delete(w.watched, s.UID)
	}
}

// watch waits for the end of a container, and then requests relists of its pod until the runtime
// agrees, which ends ctx.
func (w *watcher) watch(ctx context.Context, id pleg.ContainerID) {
	c, err := w.pipeline.Lookup(ctx, lookup.Query{Container: id, WithPath: true})
	var first *process
	if err == nil {
		first, err = openFirst(containerindex.Host{Proc: w.options.Proc, Cgroup: w.options.Cgroup}, c.CgroupPath)
	}
	if err != nil {
		w.options.Logger.DebugContext(ctx, "process of container not watched", "containerID", id, "err", err)
		return
	}
	defer first.close()
	w.options.Logger.DebugContext(ctx, "process of container watched", "containerID", id)
	if !first.wait(ctx) {
		return
	}
	end := End{Container: c, At: time.Now()}
	w.pipeline.RequestRelist(c.PodUID)
	if w.options.Ended != nil {
		end.ExitCode = first.exitCode(ctx)
		w.options.Ended(end)
	}
	for wait := firstWait; time.Since(end.At) < agreeWithin; wait = min(2*wait, lastWait) {
		select {
		case <-time.After(wait):
			w.pipeline.RequestRelist(c.PodUID)
		case <-ctx.Done():
			return
		}
	}
}
