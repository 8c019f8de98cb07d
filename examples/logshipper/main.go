// Command logshipper shows a subscriber that must not miss a container, even if it ran for a very
// short time: it prints which log files it would read and when each is complete.
//
//	logshipper unix:///run/containerd/containerd.sock
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: logshipper ENDPOINT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1], os.Stdout, log); err != nil {
		log.Error("logshipper failed", "err", err)
		os.Exit(1)
	}
}

// run prints the logs until ctx ends.
func run(ctx context.Context, endpoint string, out io.Writer, logger *slog.Logger) error {
	runtime, err := cri.New(endpoint, cri.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer runtime.Close()
	// Only CRI events show a container that starts, exits and is removed between two
	// relists. Relists find the changes that no CRI event announced.
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto, Logger: logger})
	if err != nil {
		return err
	}
	sub, err := p.Subscribe(pleg.SubscribeOptions{Name: "logshipper", Statuses: true, Filter: pleg.Filter{OmitSandboxes: true}})
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error {
		s := newShipper(out, p.Cache().GetRemoved)
		for ev, err := range sub.All(context.WithoutCancel(ctx)) { // until Run has returned
			if err != nil {
				break
			}
			s.handle(ev)
		}
		return nil
	})
	return tasks.Wait()
}

// shipper keeps track of the logs that it reads. Only one goroutine may use it.
type shipper struct {
	out io.Writer
	// removed returns the last status of a container that is gone already, or nil.
	removed func(pleg.ContainerID) *pleg.ContainerStatus
	// logs are the logs of containers that have not been removed.
	logs map[pleg.ContainerID]*log
}

type log struct {
	path     string
	complete bool
	// unseen is set by a Gap until an event of the container comes.
	unseen bool
}

func newShipper(out io.Writer, removed func(pleg.ContainerID) *pleg.ContainerStatus) *shipper {
	return &shipper{out: out, removed: removed, logs: make(map[pleg.ContainerID]*log)}
}

// handle acts on one event. The first event of a container that started and exited
// between two relists is its end.
func (s *shipper) handle(ev pleg.Event) {
	switch ev.Type {
	case pleg.ContainerStarted:
		s.read(ev)
	case pleg.ContainerDied:
		s.finish(s.read(ev))
	case pleg.ContainerRemoved:
		delete(s.logs, ev.ContainerID)
	case pleg.Gap: // events were missed: the present state of all containers follows
		for _, l := range s.logs {
			l.unseen = true
		}
	case pleg.Synced: // the containers that were not in that state have been removed
		for id, l := range s.logs {
			if l.unseen {
				s.finish(l)
				delete(s.logs, id)
			}
		}
	}
}

// read begins to read the log of the container of an event, unless it is being read.
func (s *shipper) read(ev pleg.Event) *log {
	l := s.logs[ev.ContainerID]
	if l == nil {
		l = &log{path: s.path(ev)}
		s.logs[ev.ContainerID] = l
		fmt.Fprintln(s.out, "read", l.path)
	}
	l.unseen = false
	return l
}

func (s *shipper) finish(l *log) {
	if !l.complete {
		l.complete = true
		fmt.Fprintln(s.out, "complete", l.path)
	}
}

// path returns the file to which the runtime writes the log of the container of an event. If no
// status contains the path, it is the kubelet's usual one.
func (s *shipper) path(ev pleg.Event) string {
	for _, c := range []*pleg.ContainerStatus{ev.Status.Container(ev.ContainerID), s.removed(ev.ContainerID)} {
		if c != nil && c.LogPath != "" {
			return c.LogPath
		}
	}
	return fmt.Sprintf("/var/log/pods/%s_%s_%s/%s/%d.log", ev.PodNamespace, ev.PodName, ev.PodUID, ev.ContainerName, ev.Attempt)
}
