// Package top is the full-screen view of a pipeline or of a cluster: its health, its pods
// and its events.
//
// One loop owns the model and the screen. Two goroutines send it the data of the
// source: one follows the events, the other asks for the status and the pods.
package top

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/gdamore/tcell/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Source is the origin of the view's data: one node, or a cluster.
type Source interface {
	// Events ranges over the requested events until ctx ends. It resumes by itself, and reports
	// broken connections as [client.Options] says; disconnected may be nil.
	Events(ctx context.Context, o pleg.SubscribeOptions, disconnected Disconnected) iter.Seq2[fleet.Event, error]
	// State returns the present state. With [pleg.ErrNotSynced], it returns the status.
	State(ctx context.Context) (State, error)
}

// State is the state of a node or a cluster.
type State struct {
	Pods []view.Pod
	// Status is that of the node.
	Status pleg.Status
	// Cluster is nil for one node.
	Cluster *Cluster
}

// Cluster describes the nodes of a cluster.
type Cluster struct {
	// Figures are names and values.
	Figures [][2]string
	// Problem names the problem of a node; empty if there is none.
	Problem string
}

// Verdict returns the problems of the node or the cluster.
func (s State) Verdict(now time.Time) verdict.Verdict {
	if s.Cluster != nil {
		return view.ClusterVerdict(s.Cluster.Problem, s.Pods, now)
	}
	v := verdict.Of(s.Status)
	v.Text = v.Brief()
	return v
}

// Disconnected gets the reason why there is no connection, and the time until the next attempt.
type Disconnected = func(err error, retryIn time.Duration)

// Options configure the view.
type Options struct {
	// Interval is the time between two requests for the status and the pods.
	Interval time.Duration
	// Filter is the first filter.
	Filter string
}

// framePeriod is the shortest time between two updates of the screen: a connection over
// ssh must keep up.
const framePeriod = 100 * time.Millisecond

var errQuit = errors.New("quit")

// Run shows the view on a screen until the user quits, ctx ends or the source fails. It
// returns nil in the first two cases. The caller initializes and finishes the screen.
func Run(ctx context.Context, on tcell.Screen, from Source, o Options) error {
	group, ctx := errgroup.WithContext(ctx)
	updates := make(chan update)
	events := make(chan eventMessage)
	group.Go(func() error { return follow(ctx, from, events) })
	group.Go(func() error { return ask(ctx, from, o.Interval, updates) })
	group.Go(func() error { return loop(ctx, &screen{Screen: on}, newModel(o), updates, events) })
	err := group.Wait()
	if errors.Is(err, errQuit) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// update is an answer of the source.
type update struct {
	state State
	err   error
}

// eventMessage is one event, or the reason why there is no connection.
type eventMessage struct {
	event fleet.Event
	err   error
}

// maxAsking bounds the time spent on requests to 1/maxAsking: a request for the pods of many nodes
// takes long. A source that did not answer may do so soon: it is asked half of the time.
const maxAsking = 5

// ask sends the status and the pods once per interval, or more rarely if that takes long.
func ask(ctx context.Context, from Source, interval time.Duration, updates chan<- update) error {
	for {
		began := time.Now()
		answer := askOnce(ctx, from)
		took := time.Since(began)
		pause := (maxAsking - 1) * took
		if answer.err != nil {
			pause = took
		}
		select {
		case updates <- answer:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(max(interval-took, pause)):
		case <-ctx.Done():
			return nil
		}
	}
}

const askTimeout = 5 * time.Second

func askOnce(ctx context.Context, from Source) (u update) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("nothing for %v", askTimeout))
	defer cancel()
	u.state, u.err = from.State(ctx)
	if errors.Is(u.err, pleg.ErrNotSynced) {
		u.err = nil // the status says what the first list waits for
	}
	if ctx.Err() != nil && (status.Code(u.err) == codes.DeadlineExceeded || errors.Is(u.err, context.DeadlineExceeded)) {
		u.err = context.Cause(ctx) // says more
	}
	return u
}

// follow sends the events of the source, and an error whenever the connection breaks.
func follow(ctx context.Context, from Source, events chan<- eventMessage) error {
	send := func(m eventMessage) {
		select {
		case events <- m:
		case <-ctx.Done():
		}
	}
	o := pleg.SubscribeOptions{Name: "pleg-pipeline-top", Replay: true}
	for ev, err := range from.Events(ctx, o, func(err error, _ time.Duration) { send(eventMessage{err: err}) }) {
		if err != nil {
			return err
		}
		send(eventMessage{event: ev})
	}
	return nil
}

// loop owns the screen and the model.
func loop(ctx context.Context, s *screen, m *model, updates <-chan update, events <-chan eventMessage) error {
	ticker := time.NewTicker(framePeriod)
	defer ticker.Stop()
	changed := true
	for {
		select {
		case u := <-updates:
			m.apply(u, time.Now())
			changed = true
		case next := <-events:
			if next.err != nil {
				m.disconnected = verdict.Plain(next.err)
			} else {
				m.addEvent(next.event, time.Now())
			}
			changed = true
		case ev, ok := <-s.EventQ():
			if !ok {
				return errQuit
			}
			if err := handle(s, m, ev); err != nil {
				return err
			}
			s.draw(m, time.Now()) // a key acts at once
		case <-ticker.C:
			if changed {
				changed = false
				s.draw(m, time.Now())
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// handle reacts to a key or to a new size of the terminal.
func handle(s *screen, m *model, ev tcell.Event) error {
	key, isKey := ev.(*tcell.EventKey)
	_, resized := ev.(*tcell.EventResize)
	switch {
	case resized, isKey && key.Key() == tcell.KeyCtrlL:
		s.Sync()
	case isKey:
		return m.press(keyOf(key), time.Now())
	}
	return nil
}
