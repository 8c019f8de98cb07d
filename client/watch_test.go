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

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

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
			for ev, err := range c.Watch(ctx, pleg.SubscribeOptions{}) {
				t.Errorf("got %v, %v", ev, err)
			}
			cancel()
		}
	})
}

// callsOf are the calls of a client that a daemon answers.
func callsOf(c *client.Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"PodStatus": func(ctx context.Context) error { _, err := c.PodStatus(ctx, "a", time.Time{}); return err },
		"RelistPod": func(ctx context.Context) error { _, err := c.RelistPod(ctx, "a"); return err },
		"Pods":      func(ctx context.Context) error { _, _, err := c.Pods(ctx); return err },
		"Status":    func(ctx context.Context) error { _, err := c.Status(ctx); return err },
		"Lookup":    func(ctx context.Context) error { _, err := c.Lookup(ctx, lookup.Query{Container: "c"}); return err },
	}
}

// A daemon that is away causes an error of its own, and so does another user's socket.
func TestDaemonIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		w := f.watch()
		f.endServer()
		time.Sleep(time.Minute)
		for of, call := range callsOf(f.client) {
			began := time.Now()
			if err := call(t.Context()); !errors.Is(err, pleg.ErrNoDaemon) || !errors.Is(err, errDown) || status.Code(err) != codes.Unavailable || !strings.HasSuffix(err.Error(), ": the server is down") || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v, want ErrNoDaemon, why, and the code Unavailable at once", of, err, time.Since(began))
			}
		}
		w.mu.Lock()
		for _, err := range w.disconnected {
			if !errors.Is(err, pleg.ErrNoDaemon) {
				t.Errorf("disconnected: %v, want ErrNoDaemon", err)
			}
		}
		w.mu.Unlock()
		failed, errForbidden := 0, fmt.Errorf("dial: %w", fs.ErrPermission)
		forbidden, err := client.New("", client.Options{
			Dial:         func(context.Context) (net.Conn, error) { return nil, errForbidden },
			Disconnected: func(error, time.Duration) { failed++ },
		})
		kit.Must(t, err)
		defer forbidden.Close()
		all := map[string]error{"WaitSynced": forbidden.WaitSynced(t.Context())}
		for of, call := range callsOf(forbidden) {
			all[of] = call(t.Context())
		}
		failed = 0
		for _, err := range forbidden.Watch(t.Context(), pleg.SubscribeOptions{}) { // the watch ends
			all["Watch"] = errors.Join(all["Watch"], err)
		}
		if failed != 5 {
			t.Errorf("the watch ended after %d attempts and one more, want 6", failed)
		}
		for of, says := range map[string]string{
			"PodStatus": "status of pod a: ", "RelistPod": "status of pod a: ", "Pods": "list pods: ", "Status": "status of the pipeline: ",
			"Lookup": "look up container c: ", "WaitSynced": "wait for the first list: watch: connect: ", "Watch": "watch: connect: ",
		} {
			if err := all[of]; errors.Is(err, pleg.ErrNoDaemon) || !errors.Is(err, fs.ErrPermission) || !errors.Is(err, errForbidden) || status.Code(err) != codes.Unavailable || err.Error() != says+"dial: permission denied" {
				t.Errorf("%s: %v, want %s, and that it is forbidden", of, err, says)
			}
		}
		f.startServer() // the error is that of the last connection
		time.Sleep(time.Minute)
		_ = f.pipe.Stop()
		_, err = f.client.Lookup(t.Context(), lookup.Query{Container: "unknown"})
		if status.Code(err) != codes.Unavailable || errors.Is(err, errDown) {
			t.Errorf("with a server: %v, want that the pipeline has stopped", err)
		}
	})
}

// If permissions forbid the socket for a moment, such as until systemd has set the mode of its
// folder, the watch does not end.
func TestForbiddenForAMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		attempts := 0
		c, err := client.New("", client.Options{Dial: func(ctx context.Context) (net.Conn, error) {
			if attempts++; attempts%6 != 0 {
				return nil, fs.ErrPermission
			}
			return f.dial(ctx)
		}})
		kit.Must(t, err)
		defer c.Close()
		synced := 0
		for ev, err := range c.Watch(t.Context(), pleg.SubscribeOptions{Replay: true}) {
			kit.Must(t, err)
			if ev.Type != pleg.Synced {
				continue
			}
			if synced++; synced == 3 {
				break
			}
			f.breakConnections()
		}
		if synced != 3 || attempts != 18 {
			t.Errorf("%d connections after %d attempts, want 3 after 18", synced, attempts)
		}
	})
}

// Each call ends with its context, also if the daemon answers nothing.
func TestCallsEndWithTheirContext(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		thaw := f.freeze()
		defer thaw()
		calls := callsOf(f.client)
		calls["WaitSynced"] = f.client.WaitSynced
		for of, call := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "context deadline exceeded") || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %v, want the end of its context after 1s", of, err, time.Since(began))
			}
			cancel()
		}
		stopped, stop := context.WithCancelCause(t.Context())
		stop(errStopped)
		if err := f.client.WaitSynced(stopped); !errors.Is(err, errStopped) {
			t.Errorf("WaitSynced = %v, want the cause", err)
		}
	})
}

// A stopped daemon keeps its connections and accepts new connections, but answers nothing.
func TestStoppedDaemonIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		w := f.watch()
		f.change("a", "c1=running")
		if _, err := f.client.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		thaw := f.freeze()
		go func() {
			_, err := f.client.PodStatus(t.Context(), "a", time.Now().Add(time.Hour))
			waited <- err
		}()
		began := time.Now()
		if ok, err := f.client.Healthy(); ok || !errors.Is(err, pleg.ErrNoDaemon) || err.Error() != pleg.ErrNoDaemon.Error()+": it has not answered within 5s" || time.Since(began) != 5*time.Second {
			t.Errorf("Healthy = %t, %v after %v, want ErrNoDaemon, and why, after 5 s", ok, err, time.Since(began))
		}
		if err := <-waited; !errors.Is(err, pleg.ErrNoDaemon) {
			t.Errorf("a call that waits: %v, want ErrNoDaemon", err)
		}
		if took := time.Since(began); took > time.Minute || took < 59*time.Second {
			t.Errorf("the call was notified %v later, want a minute", took)
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		if len(w.disconnected) == 0 || !errors.Is(w.disconnected[0], pleg.ErrNoDaemon) {
			t.Errorf("disconnected: %v, want ErrNoDaemon", w.disconnected)
		}
		w.mu.Unlock()
		f.runtime.Set("a", "c1=exited")
		time.Sleep(10 * time.Minute)
		thaw()
		time.Sleep(2 * time.Minute)
		if got := plegtest.Words(w.Events()...); got != "Started(c1) Died(c1) Synced()" {
			t.Errorf("got %s", got)
		}
	})
}

var errStopped = errors.New("stopped")

// A program that subscribes does not see whether the pipeline is in its process.
func TestSubscribe(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.change("a", "c1=running")
		for name, p := range map[string]node.Pipeline{"in the process": f.pipe.Pipeline, "over the socket": f.client} {
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
			stopped, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { stop(errStopped) })
			for range 2 { // while it waits, and before
				if _, err := next.Next(stopped); !errors.Is(err, errStopped) {
					t.Errorf("%s: with a context that has ended: %v, want its cause", name, err)
				}
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
			early, err := p.Subscribe(pleg.SubscribeOptions{})
			kit.Must(t, err)
			_, _ = early.Next(stopped) // its first read, from which on it gets all events
			synctest.Wait()
			f.change(pleg.PodUID(name), "c2=running")
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if ev, err := early.Next(soon); err != nil || ev.PodUID != pleg.PodUID(name) {
				t.Errorf("%s: after a read whose context had ended: %v, %v", name, ev, err)
			}
			early.Close()
			f.change(pleg.PodUID(name), "")
			started := subscribe(t, p)
			for ev, err := range started.All(t.Context()) {
				if kit.Must(t, err); ev.Type == pleg.ContainerStarted {
					break // before the Synced
				}
			}
			started.Close()
			unread := subscribe(t, p)
			if lag := unread.Lag(); lag != (pleg.Lag{}) {
				t.Errorf("%s: the lag is %+v before anything was read", name, lag)
			}
			unread.Close()
			for range unread.All(t.Context()) { //nolint:errcheck // nothing is read
				t.Errorf("%s: an event of a subscription that was closed before it was read", name)
			}
		}
	})
}

// A second range over a watch begins as the first did.
func TestWatchTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.change("a", "c1=running")
		watch := f.client.Watch(t.Context(), pleg.SubscribeOptions{Replay: true})
		for range 2 {
			for ev, err := range watch {
				if err != nil || ev.Type != pleg.ContainerStarted {
					t.Errorf("the first event is %v, %v, want the replay", ev, err)
				}
				break
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

// A subscription over the socket reports the lag that the server had when it sent the last event.
func TestLagOverTheSocket(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.change("a", "c1=running")
		after := pleg.Position{Epoch: f.pipe.Epoch()}
		f.change("a", "c1=exited c2=running c3=running")
		sub, err := f.client.Subscribe(pleg.SubscribeOptions{After: after})
		kit.Must(t, err)
		defer sub.Close()
		time.Sleep(100 * time.Millisecond) // the list was half a second ago
		_, err = sub.Next(t.Context())
		synctest.Wait() // the second has come, and waits
		if lag := sub.Lag(); err != nil || lag != (pleg.Lag{Events: 2, Age: 600 * time.Millisecond}) {
			t.Errorf("%v, the lag is %+v, want 2 events of 0.6 s", err, lag)
		}
		for ev := (pleg.Event{}); ev.Type != pleg.Synced; {
			ev, err = sub.Next(t.Context())
			kit.Must(t, err)
		}
		if lag := sub.Lag(); lag != (pleg.Lag{}) {
			t.Errorf("the lag is %+v after all", lag)
		}
	})
}
