package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A program that subscribes does not see whether the pipeline is in its process.
func TestSubscribe(t *testing.T) {
	inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
		f.change(1, "a", "c1=running")
		for name, p := range map[string]node.Pipeline{"in the process": f.pipe.Pipeline, "over the socket": f.client} {
			if _, err := p.Subscribe(pleg.SubscribeOptions{After: pleg.Position{Seq: 7}}); !errors.Is(err, pleg.ErrInvalidOption) {
				t.Errorf("%s: a bare number: %v, want %v", name, err, pleg.ErrInvalidOption)
			}
			next, all, events := subscribe(t, p), subscribe(t, p), subscribe(t, p)
			waited, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var got [3][]pleg.Event
			for range 2 {
				ev, err := next.Next(t.Context())
				kit.Must(t, err)
				got[0] = append(got[0], ev)
			}
			for ev, err := range all.All(waited) {
				kit.Must(t, err)
				got[1] = append(got[1], ev)
			}
			for range 2 {
				got[2] = append(got[2], <-events.Events())
			}
			for i, events := range got {
				if words := plegtest.Words(events...); words != "Started(c1) Synced()" {
					t.Errorf("%s, reader %d: got %q", name, i, words)
				}
			}
			if _, err := next.Next(waited); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: with a context that has ended: %v", name, err)
			}
			for _, sub := range []pleg.Subscription{next, all, events} {
				if lag := sub.Lag(); lag != (pleg.Lag{}) {
					t.Errorf("%s: the lag is %+v after everything was read", name, lag)
				}
				sub.Close()
				synctest.Wait()
				if _, err := sub.Next(t.Context()); !errors.Is(err, pleg.ErrClosed) {
					t.Errorf("%s: after Close: %v, want %v", name, err, pleg.ErrClosed)
				}
				if _, open := <-sub.Events(); open {
					t.Errorf("%s: an event after Close", name)
				}
			}
			unread := subscribe(t, p)
			unread.Close()
			for range unread.All(t.Context()) { //nolint:errcheck // nothing is read
				t.Errorf("%s: an event of a subscription that was closed before it was read", name)
			}
		}
	})
}

func subscribe(t *testing.T, p node.Pipeline) pleg.Subscription {
	t.Helper()
	sub, err := p.Subscribe(pleg.SubscribeOptions{Name: "test", Replay: true})
	kit.Must(t, err)
	if sub.Name() != "test" {
		t.Errorf("its name is %q", sub.Name())
	}
	return sub
}

// What only the server can check ends the subscription with its error.
func TestSubscriptionEnds(t *testing.T) {
	inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
		sub, err := f.client.Subscribe(pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "a in"}})
		kit.Must(t, err)
		defer sub.Close()
		if _, err := sub.Next(t.Context()); !errors.Is(err, pleg.ErrInvalidOption) {
			t.Errorf("got %v, want %v", err, pleg.ErrInvalidOption)
		}
	})
}

// A subscription over the socket reports the lag that the server had when it sent the last event.
func TestLagOverTheSocket(t *testing.T) {
	inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
		f.change(1, "a", "c1=running")
		after := pleg.Position{Epoch: f.pipe.Epoch()}
		f.change(1, "a", "c1=exited c2=running c3=running")
		sub, err := f.client.Subscribe(pleg.SubscribeOptions{After: after})
		kit.Must(t, err)
		defer sub.Close()
		_, err = sub.Next(t.Context())
		synctest.Wait() // the second has come, and waits
		if lag := sub.Lag(); err != nil || lag.Events != 2 || lag.Age == 0 {
			t.Errorf("%v, the lag is %+v, want 2 events", err, lag)
		}
	})
}
