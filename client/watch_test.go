package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// words returns events in short; a Gap has its reason.
func words(events []pleg.Event) string {
	var all []string
	for _, ev := range events {
		word := plegtest.Words(ev)
		switch {
		case ev.Type == pleg.Gap:
			word = "Gap(" + ev.Reason + ")"
		case ev.PodUID == "":
			word = string(ev.Type)
		case ev.Replayed:
			word = "re" + word
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func want(t *testing.T, w *watch, expected string) {
	t.Helper()
	if got := words(w.Events()); got != expected {
		t.Errorf("got  %s\nwant %s", got, expected)
	}
}

// Events that its filter drops do not push a watch out of the history.
func TestWatchOfRareEventsResumes(t *testing.T) {
	inBubble(t, pipeline.Options{History: 20}, func(t *testing.T, f *fixture) {
		w := f.watch(client.WatchOptions{Filter: pleg.Filter{Namespaces: []string{"rare"}}}, nil)
		f.change(1, "rare/a", "c1=running")
		for i := range 50 {
			f.change(1, "often/b", fmt.Sprintf("c%d=running", i))
		}
		f.endServer()
		f.change(1, "rare/a", "c1=exited")
		f.startServer()
		kit.Relist(20)
		want(t, w, "Started(c1) Died(c1) Synced")
	})
}

// Every event of a watch has the position after which another watch can resume, and a
// watch with bookmarks has one before its first event.
func TestWatchAlwaysHasAPosition(t *testing.T) {
	inBubble(t, pipeline.Options{RelistPeriod: time.Minute}, func(t *testing.T, f *fixture) {
		f.change(70, "a", "c1=running")
		quiet := f.watch(client.WatchOptions{Bookmarks: true}, nil)
		want(t, quiet, "Synced Bookmark")
		live := f.watch(client.WatchOptions{}, nil)
		f.change(70, "a", "c1=exited c2=running")
		want(t, live, "Died(c1) Started(c2)")
		for _, tt := range []struct {
			at   pleg.Event
			gets string
		}{
			{pleg.Event{Epoch: f.pipe.Epoch()}, "Started(c1) Died(c1) Started(c2) Synced"},
			{quiet.Events()[0], "Died(c1) Started(c2) Synced"},
			{live.Events()[0], "Started(c2) Synced"},
			{live.Events()[1], "Synced"},
		} {
			after, ok := tt.at.Position()
			if !ok || after.Epoch != f.pipe.Epoch() {
				t.Errorf("the position of %+v is %v, %t, want a position of the epoch %s", tt.at, after, ok, f.pipe.Epoch())
			}
			want(t, f.watch(client.WatchOptions{After: after}, nil), tt.gets)
		}
	})
}

// A watch that can never succeed ends with an error that says why.
func TestWatchEnds(t *testing.T) {
	tests := []struct {
		name    string
		options client.WatchOptions
		code    codes.Code
		says    string
	}{
		{"selector", client.WatchOptions{Filter: pleg.Filter{Selector: "a in"}}, codes.InvalidArgument, "label selector"},
		{"type", client.WatchOptions{Filter: pleg.Filter{Types: []pleg.EventType{"Nothing"}}}, codes.Unknown, `Types has the unknown event type "Nothing"`},
		{"mark", client.WatchOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.Synced}}}, codes.InvalidArgument, `unknown event type "Synced"`},
		{"long name", client.WatchOptions{Name: strings.Repeat("x", 101)}, codes.InvalidArgument, "name has 101 bytes, the limit is 100"},
		{"two positions", client.WatchOptions{After: pleg.Position{Epoch: "e"}, Since: time.Now()}, codes.Unknown, "After and Since exclude each other"},
		{"bare number", client.WatchOptions{After: pleg.Position{Seq: 475}}, codes.Unknown, "After has no epoch, so its number 475 may be of another pipeline"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
				w := f.watch(tt.options, nil)
				<-w.Done
				if status.Code(w.err) != tt.code || w.err == nil || !strings.Contains(w.err.Error(), tt.says) {
					t.Errorf("it ended with %v, want %v and %q", w.err, tt.code, tt.says)
				}
			})
		})
	}
}

func TestWatchEndsWithItsLoop(t *testing.T) {
	inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
		f.change(1, "a", "c1=running c2=running")
		for ev, err := range f.client.Watch(t.Context(), client.WatchOptions{Replay: true}) {
			if err != nil || ev.ContainerID != "c1" {
				t.Errorf("got %+v, %v, want the event of c1", ev, err)
			}
			break
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for ev, err := range f.client.Watch(ctx, client.WatchOptions{}) {
			t.Errorf("got %+v, %v, want nothing", ev, err)
		}
		if ctx.Err() == nil {
			t.Error("the watch ended before its context")
		}
	})
}

// A watch that asked for the past asks for it once: after a restart of the daemon it resumes
// where it was, which is an attempt that can succeed.
func TestWatchWithSinceOutlivesARestart(t *testing.T) {
	inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
		f.change(1, "a", "c1=running")
		w := f.watch(client.WatchOptions{Since: time.Now().Add(-time.Hour)}, nil)
		f.change(1, "a", "c1=exited")
		f.endServer()
		f.change(1, "a", "c1=exited c2=running")
		f.startServer()
		kit.Relist(20)
		f.endServer()
		_ = f.pipe.Stop()
		f.startPipeline(pipeline.Options{})
		f.startServer()
		kit.Relist(20)
		f.change(1, "a", "c2=exited")
		want(t, w, "Started(c1) Synced Died(c1) Started(c2) Synced Gap(OtherEpoch) reDied(c1) reStarted(c2) Synced Removed(c1) Died(c2)")
		if w.err != nil {
			t.Errorf("it ended with %v", w.err)
		}
	})
}

// The end of a context is no broken connection, also if the clock of the server ends the call
// at its deadline a moment earlier.
func TestEndOfContextIsNoDisconnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := &hostile.Daemon{OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
			if at, ok := stream.Context().Deadline(); ok {
				time.Sleep(time.Until(at) - time.Millisecond)
				return status.Error(codes.DeadlineExceeded, "too late")
			}
			<-stream.Context().Done()
			return nil
		}}
		c, err := client.New("", client.Options{
			Dial:         hostile.Serve(t, early),
			Disconnected: func(err error, _ time.Duration) { t.Errorf("disconnected: %v", err) },
		})
		kit.Must(t, err)
		defer c.Close()
		for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := end(t.Context())
			for ev, err := range c.Watch(ctx, client.WatchOptions{}) {
				t.Errorf("got %v, %v", ev, err)
			}
			cancel()
		}
	})
}

// A daemon that is away has an error of its own, and so has a socket that is not ours.
func TestDaemonIsAway(t *testing.T) {
	inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
		calls := func(c *client.Client) map[string]error {
			_, ofPod := c.PodStatus(t.Context(), "a", time.Time{})
			_, ofPods := c.Pods(t.Context())
			_, ofStatus := c.Status(t.Context())
			_, ofLookup := c.Lookup(t.Context(), lookup.Query{Container: "c"})
			return map[string]error{"PodStatus": ofPod, "Pods": ofPods, "Status": ofStatus, "Lookup": ofLookup}
		}
		w := f.watch(client.WatchOptions{}, nil)
		f.endServer()
		time.Sleep(time.Minute)
		for of, err := range calls(f.client) {
			if !errors.Is(err, pleg.ErrNoDaemon) || !errors.Is(err, errDown) {
				t.Errorf("%s: %v, want ErrNoDaemon, and why", of, err)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, err := range w.disconnected {
			if !errors.Is(err, pleg.ErrNoDaemon) {
				t.Errorf("disconnected: %v, want ErrNoDaemon", err)
			}
		}
		forbidden, err := client.New("", client.Options{Dial: func(context.Context) (net.Conn, error) { return nil, fs.ErrPermission }})
		kit.Must(t, err)
		defer forbidden.Close()
		all := calls(forbidden)
		all["WaitSynced"] = forbidden.WaitSynced(t.Context())
		for _, err := range forbidden.Watch(t.Context(), client.WatchOptions{}) { // it ends
			all["Watch"] = errors.Join(all["Watch"], err)
		}
		if all["Watch"] == nil {
			t.Error("a watch that is forbidden ended without an error")
		}
		for of, err := range all {
			if errors.Is(err, pleg.ErrNoDaemon) || !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: %v, want that it is forbidden", of, err)
			}
		}
	})
}

// A stopped daemon keeps its connections and accepts new connections, but answers nothing.
func TestStoppedDaemonIsNoticed(t *testing.T) {
	inBubble(t, pipeline.Options{}, func(t *testing.T, f *fixture) {
		w := f.watch(client.WatchOptions{}, nil)
		f.change(1, "a", "c1=running")
		if _, err := f.client.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		f.freeze(true)
		go func() {
			_, err := f.client.PodStatus(t.Context(), "a", time.Now().Add(time.Hour))
			waited <- err
		}()
		began := time.Now()
		if err := <-waited; !errors.Is(err, pleg.ErrNoDaemon) {
			t.Errorf("a call that waits: %v, want ErrNoDaemon", err)
		}
		if took := time.Since(began); took > 90*time.Second {
			t.Errorf("the call was notified %v later", took)
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		if len(w.disconnected) == 0 || !errors.Is(w.disconnected[0], pleg.ErrNoDaemon) {
			t.Errorf("disconnected: %v, want ErrNoDaemon", w.disconnected)
		}
		w.mu.Unlock()
		f.runtime.Set("a", "c1=exited")
		time.Sleep(10 * time.Minute)
		f.freeze(false)
		time.Sleep(2 * time.Minute)
		want(t, w, "Started(c1) Died(c1) Synced")
	})
}
