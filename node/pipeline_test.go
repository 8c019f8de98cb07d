package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ node.Pipeline = (*pipeline.Pipeline)(nil)
	_ node.Pipeline = (*client.Client)(nil)
)

// onBoth runs a test with a pipeline in this process, and again with a pipeline in a daemon. The
// list of the runtime hangs until the test ends that fault.
func onBoth(t *testing.T, test func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline)) {
	t.Helper()
	for _, where := range []string{"in this process", "in a daemon"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := plegtest.New()
				runtime.SetListFault(plegtest.Delay(time.Hour))
				pipe := kit.New(t, pipeline.Options{Runtime: runtime, RelistPeriod: time.Minute})
				pipe.Start(t)
				if where == "in this process" {
					test(t, runtime, pipe)
					return
				}
				s, err := server.New(pipe.Pipeline, server.Options{})
				kit.Must(t, err)
				dial, _ := kit.Serve(t, s.Serve)
				c, err := client.New("", client.Options{Dial: dial})
				kit.Must(t, err)
				t.Cleanup(func() { c.Close() })
				test(t, runtime, c)
			})
		})
	}
}

// Until the first list is committed, no answer says that a pod is gone, and WaitSynced waits.
func TestNotSyncedIsNotGone(t *testing.T) {
	onBoth(t, func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline) {
		runtime.Set("shop/web", "c1=running")
		questions := func(want error) {
			t.Helper()
			_, ofPod := p.PodStatus(t.Context(), "unknown", time.Time{})
			_, _, ofPods := p.Pods(t.Context())
			_, _, ofSome := p.Pods(t.Context(), "unknown")
			_, ofContainer := p.Lookup(t.Context(), lookup.Query{Container: "unknown"})
			for of, err := range map[string]error{"PodStatus": ofPod, "Pods": ofPods, "Pods of a UID": ofSome, "Lookup": ofContainer} {
				if got := errors.Is(err, pleg.ErrNotSynced); got != (want != nil) {
					t.Errorf("%s: %v, want ErrNotSynced: %v", of, err, want != nil)
				}
				if errors.Is(err, pleg.ErrNoDaemon) {
					t.Errorf("%s: %v, but the daemon is there", of, err)
				}
			}
			if !errors.Is(ofContainer, lookup.ErrNotYet) {
				t.Errorf("Lookup: %v, want ErrNotYet", ofContainer)
			}
			if want == nil && (!errors.Is(ofPod, pleg.ErrUnknownPod) || !strings.Contains(ofPod.Error(), "pod unknown")) {
				t.Errorf("PodStatus: %v, want ErrUnknownPod and the UID", ofPod)
			}
		}
		questions(pleg.ErrNotSynced)
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too long"))
		defer stop()
		if err := p.WaitSynced(ctx); err == nil || err.Error() != "too long" {
			t.Errorf("WaitSynced = %v, want the cause of its context", err)
		}
		synced := make(chan error)
		go func() { synced <- p.WaitSynced(t.Context()) }()
		time.Sleep(30 * time.Minute)
		select {
		case err := <-synced:
			t.Errorf("WaitSynced = %v before the first list", err)
		default:
		}
		runtime.SetListFault(nil)
		began := time.Now()
		kit.Must(t, <-synced)
		if waited := time.Since(began); waited > time.Hour {
			t.Errorf("WaitSynced returned %v later", waited)
		}
		questions(nil)
		pods, _, err := p.Pods(t.Context())
		if err != nil || len(pods) != 1 || pods[0].UID != "shop/web" {
			t.Errorf("Pods = %+v, %v, want one", pods, err)
		}
		kit.Must(t, p.WaitSynced(t.Context()))
	})
}

// A program that knows of a change does not wait for the next list of all pods.
func TestRelistPod(t *testing.T) {
	onBoth(t, func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline) {
		runtime.Set("shop/web", "c1=running")
		runtime.SetListFault(nil)
		kit.Must(t, p.WaitSynced(t.Context()))
		time.Sleep(time.Second)
		lists := runtime.Counts().Lists
		runtime.Set("shop/web", "c1=exited")
		began := time.Now()
		status, err := p.RelistPod(t.Context(), "shop/web")
		if err != nil || status.Container("c1").State != pleg.StateExited {
			t.Errorf("RelistPod = %+v, %v, want the change", status, err)
		}
		if took := time.Since(began); took > time.Second || runtime.Counts().Lists != lists {
			t.Errorf("it took %v and %d lists of all pods", took, runtime.Counts().Lists-lists)
		}
		runtime.Remove("shop/web")
		if _, err := p.RelistPod(t.Context(), "shop/web"); !errors.Is(err, pleg.ErrUnknownPod) {
			t.Errorf("RelistPod of a removed pod = %v, want ErrUnknownPod", err)
		}
	})
}

// A list and the events after its position miss nothing and repeat nothing, while pods change.
func TestListAndWatch(t *testing.T) {
	onBoth(t, func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline) {
		runtime.SetListFault(nil)
		runtime.SetInspectFault(plegtest.Delay(3 * time.Millisecond)) // so that some are in flight
		kit.Must(t, p.WaitSynced(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all []pleg.Event // the events that every subscriber that missed nothing got
		sub, err := p.Subscribe(pleg.SubscribeOptions{Bookmarks: true})
		kit.Must(t, err)
		defer sub.Close()
		if ev, err := sub.Next(ctx); err != nil || ev.Type != pleg.Synced && ev.Type != pleg.Bookmark { // the subscription has begun
			t.Fatal(ev, err)
		}
		var readers sync.WaitGroup
		read := func(sub pleg.Subscription, see func(pleg.Event)) {
			readers.Go(func() {
				for ev, err := range sub.All(ctx) {
					if err != nil {
						t.Errorf("subscription: %v", err)
						return
					}
					see(ev)
				}
			})
		}
		read(sub, func(ev pleg.Event) {
			if ev.ContainerID != "" {
				all = append(all, ev)
			}
		})
		readers.Go(func() { // the pods change
			random := rand.New(rand.NewPCG(1, 2))
			lives := []string{"c%=running", "c%=running d%=running", "c%=exited d%=running", "c%=exited d%=exited", "d%=exited", ""}
			steps := make([]int, 20)
			for ctx.Err() == nil {
				n := random.IntN(len(steps))
				uid := pleg.PodUID(fmt.Sprint("p", n))
				runtime.Set(uid, strings.ReplaceAll(lives[steps[n]%len(lives)], "%", fmt.Sprint("-", n, "-", steps[n]/len(lives))))
				steps[n] += 1 + random.IntN(2)
				_, _ = p.RelistPod(ctx, uid)
			}
		})
		type watcher struct {
			list  []cache.Entry
			after pleg.Position
			got   []pleg.Event
		}
		watchers := make([]*watcher, 40)
		for n := range watchers {
			time.Sleep(time.Duration(n%7+1) * 1300 * time.Microsecond)
			w := &watcher{}
			w.list, w.after, err = p.Pods(ctx)
			kit.Must(t, err)
			time.Sleep(time.Duration(n%3) * 5 * time.Millisecond)
			sub, err := p.Subscribe(pleg.SubscribeOptions{After: w.after})
			kit.Must(t, err)
			defer sub.Close()
			read(sub, func(ev pleg.Event) { w.got = append(w.got, ev) })
			watchers[n] = w
		}
		time.Sleep(2 * time.Second)
		cancel()
		readers.Wait()
		moved := 0
		for n, w := range watchers {
			last := w.after.Seq
			for _, ev := range w.got {
				if ev.Type == pleg.Gap || ev.Replayed || ev.ContainerID != "" && ev.Seq <= w.after.Seq {
					t.Fatalf("watcher %d after %v got %+v, want only what is new", n, w.after, ev)
				}
				last = max(last, ev.Seq)
			}
			want := slices.DeleteFunc(slices.Clone(all), func(ev pleg.Event) bool { return ev.Seq <= w.after.Seq || ev.Seq > last })
			got := slices.DeleteFunc(slices.Clone(w.got), func(ev pleg.Event) bool { return ev.ContainerID == "" })
			if !slices.EqualFunc(got, want, func(a, b pleg.Event) bool {
				return a.Seq == b.Seq && a.Type == b.Type && a.ContainerID == b.ContainerID
			}) {
				t.Errorf("watcher %d after %v got %s, want %s", n, w.after, plegtest.Words(got...), plegtest.Words(want...))
			}
			moved += len(got)
			for id, ev := range lastEvents(all, w.after.Seq) {
				if state, ok := stateIn(w.list, ev.PodUID, id); !includes(state, ok, ev.Type) {
					t.Errorf("watcher %d: the list at %v has %s in state %v (%t), before event %d, %s", n, w.after, id, state, ok, ev.Seq, ev.Type)
				}
			}
		}
		if moved < 300 {
			t.Errorf("the watchers got %d events, want a test with many", moved)
		}
	})
}

// lastEvents returns the last event of each container up to a number.
func lastEvents(all []pleg.Event, until uint64) map[pleg.ContainerID]pleg.Event {
	last := make(map[pleg.ContainerID]pleg.Event)
	for _, ev := range all {
		if ev.Seq <= until {
			last[ev.ContainerID] = ev
		}
	}
	return last
}

func stateIn(list []cache.Entry, uid pleg.PodUID, id pleg.ContainerID) (pleg.State, bool) {
	for _, e := range list {
		if c := e.Last.Container(id); e.UID == uid && c != nil {
			return c.State, true
		}
	}
	return 0, false
}

// includes reports whether the state of a container in a list includes an event.
func includes(state pleg.State, listed bool, event pleg.EventType) bool {
	switch event {
	case pleg.ContainerStarted:
		return !listed || state == pleg.StateRunning || state == pleg.StateExited
	case pleg.ContainerDied:
		return !listed || state == pleg.StateExited
	default:
		return !listed
	}
}

// The calls of a sync loop work in this process and over the socket.
func TestRequests(t *testing.T) {
	onBoth(t, func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline) {
		if ok, err := p.Healthy(); ok || err == nil {
			t.Errorf("Healthy = %t, %v before the first list", ok, err)
		}
		runtime.Set("shop/web", "c1=running")
		runtime.SetListFault(nil)
		kit.Must(t, p.WaitSynced(t.Context()))
		if ok, err := p.Healthy(); !ok || err != nil {
			t.Errorf("Healthy = %t, %v", ok, err)
		}
		if s, err := p.Status(t.Context()); err != nil || s.Relist.Pods != 1 || !s.Healthy {
			t.Errorf("Status = %+v, %v", s, err)
		}
		_, position, err := p.Pods(t.Context())
		kit.Must(t, err)
		sub, err := p.Subscribe(pleg.SubscribeOptions{After: position})
		kit.Must(t, err)
		defer sub.Close()
		if ev, err := sub.Next(t.Context()); err != nil || ev.Type != pleg.Synced {
			t.Fatal(ev, err)
		}
		lists := runtime.Counts().Lists
		runtime.Set("shop/web", "c1=exited")
		began := time.Now()
		p.RequestRelist("shop/web")
		if ev, err := sub.Next(t.Context()); err != nil || ev.Type != pleg.ContainerDied || time.Since(began) > time.Second || runtime.Counts().Lists != lists {
			t.Errorf("got %+v, %v after %v and %d lists of all pods", ev, err, time.Since(began), runtime.Counts().Lists-lists)
		}
		p.RequestReinspect("shop/web")
		if ev, err := sub.Next(t.Context()); err != nil || ev.Type != pleg.PodSync || time.Since(began) > 2*time.Minute {
			t.Errorf("got %+v, %v after %v, want the PodSync of the next relist", ev, err, time.Since(began))
		}
	})
}

// Two readers get an error, and share no event.
func TestTwoReaders(t *testing.T) {
	onBoth(t, func(t *testing.T, runtime *plegtest.Runtime, p node.Pipeline) {
		runtime.SetListFault(nil)
		kit.Must(t, p.WaitSynced(t.Context()))
		open := func() pleg.Subscription {
			sub, err := p.Subscribe(pleg.SubscribeOptions{Replay: true})
			kit.Must(t, err)
			if ev, err := sub.Next(t.Context()); err != nil || ev.Type != pleg.Synced {
				t.Fatal(ev, err)
			}
			return sub
		}
		sub := open()
		ended := make(chan error)
		go func() { _, err := sub.Next(t.Context()); ended <- err }()
		synctest.Wait()
		if _, err := sub.Next(t.Context()); !errors.Is(err, pleg.ErrTwoReaders) {
			t.Errorf("Next beside Next = %v, want ErrTwoReaders", err)
		}
		var beside []error
		for _, err := range sub.All(t.Context()) {
			beside = append(beside, err)
		}
		if len(beside) != 1 || !errors.Is(beside[0], pleg.ErrTwoReaders) {
			t.Errorf("All beside Next = %v, want ErrTwoReaders", beside)
		}
		if ev, ok := <-sub.Events(); ok {
			t.Errorf("Events beside Next has %+v, want a closed channel", ev)
		}
		sub.Close()
		if err := <-ended; !errors.Is(err, pleg.ErrClosed) {
			t.Errorf("Next = %v, want ErrClosed", err)
		}
		sub = open()
		events := sub.Events()
		if sub.Events() != events {
			t.Error("Events is another channel at the second call")
		}
		if _, err := sub.Next(t.Context()); !errors.Is(err, pleg.ErrTwoReaders) {
			t.Errorf("Next beside Events = %v, want ErrTwoReaders", err)
		}
		runtime.Set("shop/web", "c1=running")
		if ev := <-events; ev.ContainerID != "c1" {
			t.Errorf("got %+v, want the event", ev)
		}
		sub.Close()
		if _, err := sub.Next(t.Context()); !errors.Is(err, pleg.ErrClosed) {
			t.Errorf("Next after Close = %v, want ErrClosed", err)
		}
		for ev, err := range sub.All(t.Context()) {
			t.Errorf("All after Close = %+v, %v, want the end", ev, err)
		}
	})
}
