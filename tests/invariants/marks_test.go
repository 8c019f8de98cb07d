package invariants_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Synced means that the initial state is complete, also for a subscriber that came
// before the first list. Events of the first list are replayed; later events before Synced are not.
func TestSyncedMeansComplete(t *testing.T) {
	const pods = 20
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{Inspectors: 2})
		kit.Fill(p.Runtime, pods, "c1=running c2=exited /s=running")
		for _, uid := range kit.UIDs(pods) {
			p.Runtime.SetPodFault(uid, plegtest.Delay(250*time.Millisecond)) // 2.5 s for all pods
		}
		last := kit.UIDs(pods)[pods-1]
		p.Runtime.SetPodFault(last, plegtest.Delay(990*time.Millisecond)) // Synced waits for it
		before := p.Follow(t, pleg.SubscribeOptions{Replay: true}, nil)
		restarted := p.Follow(t, pleg.SubscribeOptions{After: pleg.Position{Epoch: "another", Seq: 7}}, nil)
		live := p.Follow(t, pleg.SubscribeOptions{}, nil)
		p.Start(t)
		time.Sleep(time.Second + 100*time.Millisecond)
		p.Runtime.SetPodFault("p0", nil)
		p.Runtime.Set("p0", "c1=exited c2=exited /s=running")
		late := p.Follow(t, pleg.SubscribeOptions{Replay: true}, nil)
		kit.Relist(5)
		p.Runtime.Set("p1", "c1=exited c2=exited /s=running")
		kit.Relist(2)
		replayed := func(ev pleg.Event) bool { return ev.Replayed }
		for v, want := range map[*kit.Subscriber]string{
			before: "Died(c1) Synced() Died(c1)", restarted: "Gap() Died(c1) Synced() Died(c1)", late: "Died(c1) Synced() Died(c1)",
			live: "Died(c1) Died(c1)",
		} {
			events := v.Events()
			mark := slices.IndexFunc(events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
			if slices.ContainsFunc(events[max(0, mark):], replayed) && v != live {
				t.Errorf("replayed after Synced: %s", plegtest.Words(events...))
			}
			all := len(events)
			events = slices.DeleteFunc(events, replayed)
			if got := plegtest.Words(events...); got != want || all-len(events) != 3*pods {
				t.Errorf("%d events are replayed, the others are %s; want %d and %s", all-len(events), got, 3*pods, want)
			}
		}
	})
}

// A pod whose inspection hangs stops nobody's bookmarks. In bookmarks for subscribers that want the
// pod, the time stands still and the position moves on.
func TestBookmarksDespiteAHungPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.StartBetweenLists(t)
		p.Runtime.Set("web/hung", "c=running /s=running")
		p.Runtime.Set("shop/well", "c=running /s=running")
		kit.Relist(2)
		recovered := make(chan struct{})
		p.Runtime.SetPodFault("web/hung", plegtest.Block(recovered))
		p.Runtime.Set("web/hung", "c=exited /s=running")
		hungAt := time.Now()
		of := func(filter pleg.Filter) *kit.Subscriber {
			return p.Follow(t, pleg.SubscribeOptions{Bookmarks: true, Filter: filter}, nil)
		}
		concerned := map[string]*kit.Subscriber{
			"all": of(pleg.Filter{}), "its namespace": of(pleg.Filter{Namespaces: []string{"web"}}),
			"its label": of(pleg.Filter{Selector: "pod=hung"}), "its UID": of(pleg.Filter{PodUIDs: []pleg.PodUID{"web/hung"}}),
		}
		others := map[string]*kit.Subscriber{
			"another namespace": of(pleg.Filter{Namespaces: []string{"shop"}}),
			"another label":     of(pleg.Filter{Selector: "pod!=hung"}), "another UID": of(pleg.Filter{PodUIDs: []pleg.PodUID{"shop/well"}}),
		}
		lastBookmark := func(name string, v *kit.Subscriber) pleg.Event {
			events := v.Events()
			if len(events) == 0 || events[len(events)-1].Type != pleg.Bookmark {
				t.Fatalf("%s: %s, want a bookmark at the end", name, plegtest.Words(events...))
			}
			return events[len(events)-1]
		}
		kit.Relist(3)
		p.Runtime.Set("shop/well", "c=exited /s=running")
		kit.Relist(2)
		for name, v := range concerned {
			if mark := lastBookmark(name, v); mark.Seq != 7 || mark.ObservedAt.After(hungAt) {
				t.Errorf("%s: bookmark %d of %v, want 7 and a time before %v, when the pod began to hang", name, mark.Seq, mark.ObservedAt, hungAt)
			}
		}
		for name, v := range others {
			if mark := lastBookmark(name, v); mark.Seq != 7 || time.Since(mark.ObservedAt) > 2*time.Second {
				t.Errorf("%s: bookmark %d of %v, want 7 and a recent time", name, mark.Seq, mark.ObservedAt)
			}
		}
		close(recovered)
		kit.Relist(2)
		for name, v := range concerned {
			if mark := lastBookmark(name, v); mark.Seq != 8 || time.Since(mark.ObservedAt) > 2*time.Second {
				t.Errorf("%s, after the recovery: bookmark %d of %v, want 8 and a recent time", name, mark.Seq, mark.ObservedAt)
			}
		}
	})
}

// Subscribers are measured by name until the last of that name leaves. The metrics count the events
// that the slowest has not read, and the events that the log no longer contained. A slow subscriber
// is logged once.
func TestSlowSubscriberIsNamed(t *testing.T) {
	var log kit.Log
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{Logger: log.Logger(), History: 3})
		p.StartBetweenLists(t)
		sub, err := p.Subscribe(pleg.SubscribeOptions{Name: "sleeper"})
		kit.Must(t, err)
		namesake, err := p.Subscribe(pleg.SubscribeOptions{Name: "sleeper"})
		kit.Must(t, err)
		channel, err := p.Subscribe(pleg.SubscribeOptions{Name: "channel"})
		kit.Must(t, err)
		defer channel.Close()
		channel.Events() // of which it reads nothing either
		for round := range 5 {
			p.Runtime.Set("p0", fmt.Sprintf("c%d=running", round))
			kit.Relist(1)
			kit.Read(t, namesake)
		}
		kit.Relist(120)
		const events = 1 + 4*3
		kit.RequireMetric(t, p.Metrics, 3, "pleg_subscribers")
		for _, name := range []string{"sleeper", "channel"} {
			lag, age := kit.Metric(t, p.Metrics, "pleg_subscriber_lag_events", name), kit.Metric(t, p.Metrics, "pleg_subscriber_lag_seconds", name)
			if lag != events || age < 120 {
				t.Errorf("%s: %v events are unread, the oldest for %v s; want %d and two minutes", name, lag, age, events)
			}
			log.RequireLines(t, 1, `level=WARN msg="subscriber is not reading" stage=dispatcher subscriber=`+name+" age=55s events=13") // the log has three of them
		}
		of := func(name string) float64 { return kit.Metric(t, p.Metrics, "pleg_subscriber_"+name, "sleeper") }
		got := kit.Read(t, sub)
		if gap := got[0]; gap.Type != pleg.Gap || gap.Missed != events || len(got) != 3 {
			t.Errorf("got %v, want a Gap for %d, one container and Synced", got, events)
		}
		if gaps, missed, lag := of("gaps_total"), of("missed_events_total"), of("lag_events"); gaps != 1 || missed != events || lag != 0 {
			t.Errorf("%v gaps skipped %v events, %v are unread; want 1, %d and 0", gaps, missed, lag, events)
		}
		if got := kit.Metric(t, p.Metrics, "pleg_discarded_events_total"); got != events {
			t.Errorf("%v events missed, want %d", got, events)
		}
		sub.Close()
		synctest.Wait()
		if left := of("gaps_total"); left != 1 {
			t.Errorf("after one of two subscribers has left: %v gaps, want 1", left)
		}
		namesake.Close()
		synctest.Wait()
		if left := of("gaps_total"); left != 0 {
			t.Errorf("after the subscriber has left: %v gaps, want no such metric", left)
		}
	})
}

// If a pod goes before an inspection of it has succeeded, the changes that lists showed are
// reported, also to a subscriber that selects the pod by its labels.
func TestGonePodHasItsLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Runtime.Set("shop/p", "c=running")
		p.Runtime.SetPodFault("shop/p", plegtest.Fail(errInspect))
		sub := p.Follow(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "pod=p"}}, nil)
		p.StartBetweenLists(t)
		p.Runtime.Remove("shop/p")
		kit.Relist(1)
		if got, want := plegtest.Words(sub.Events()...), "Started(c) Died(c) Removed(c)"; got != want {
			t.Errorf("events are %q, want %q", got, want)
		}
	})
}

// The age of a lag is that of the first event that is not read. Only a subscriber that has not read for half a
// minute is logged.
func TestAgeOfALag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		p := kit.New(t, pipeline.Options{Logger: log.Logger()})
		sub, err := p.Subscribe(pleg.SubscribeOptions{})
		kit.Must(t, err)
		p.StartBetweenLists(t)
		p.Runtime.Set("a", "c=running")
		kit.Relist(10)
		_, err = sub.Next(t.Context())
		kit.Must(t, err)
		if lag := sub.Lag(); lag != (pleg.Lag{}) {
			t.Errorf("%+v, want none: all is read", lag)
		}
		p.Runtime.Set("a", "c=exited")
		kit.Relist(5)
		if want := (pleg.Lag{Events: 1, Age: 4500 * time.Millisecond}); sub.Lag() != want {
			t.Errorf("%+v, want %+v", sub.Lag(), want)
		}
		for lines, age := range []time.Duration{25 * time.Second, time.Minute} {
			time.Sleep(age - sub.Lag().Age)
			log.RequireLines(t, lines, "subscriber is not reading")
		}
	})
}

// The result of Pods contains the change of each event up to its position, whatever is published
// meanwhile.
func TestPositionOfPods(t *testing.T) {
	runtime := plegtest.New()
	p := kit.New(t, pipeline.Options{Runtime: runtime})
	for n := range 2000 { // so that a list takes a moment
		runtime.Set(pleg.PodUID(fmt.Sprint(n)), fmt.Sprintf("idle%d=running", n))
	}
	runtime.Set("busy", "0=running")
	p.Start(t)
	kit.Must(t, p.WaitSynced(t.Context()))
	sub, err := p.Subscribe(pleg.SubscribeOptions{Filter: pleg.Filter{PodUIDs: []pleg.PodUID{"busy"}}})
	kit.Must(t, err)
	defer sub.Close()
	started := []uint64{0} // the number of the event of each container
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			runtime.Set("busy", fmt.Sprintf("%d=running", len(started)))
			p.RequestRelist("busy")
			for {
				ev, err := sub.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if ev.Type == pleg.ContainerStarted {
					started = append(started, ev.Seq)
					break
				}
			}
		}
	}()
	type list struct {
		last int // the newest container
		at   uint64
	}
	var lists []list
	for range 50 {
		pods, position, err := p.Pods(t.Context())
		kit.Must(t, err)
		l := list{at: position.Seq}
		for _, pod := range pods {
			if pod.UID == "busy" {
				l.last, err = strconv.Atoi(string(pod.Last.Containers[0].ID))
				kit.Must(t, err)
			}
		}
		lists = append(lists, l)
	}
	close(stop)
	<-stopped
	for _, l := range lists {
		if next := l.last + 1; next < len(started) && started[next] <= l.at {
			t.Errorf("a list up to event %d has container %d, and event %d started the next one", l.at, l.last, started[next])
		}
	}
}

// If one inspection completes several lists, all callers that wait for these lists get an answer.
func TestListsThatAreCompleteAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Runtime.Set("a", "c=running")
		p.StartBetweenLists(t)
		release := make(chan struct{})
		p.Runtime.SetInspectFault(plegtest.Block(release))
		p.Runtime.Set("a", "c=exited")
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- p.RelistAll(t.Context()) }()
			kit.Relist(2)
		}
		if len(ended) > 0 {
			t.Error("a call ended before the inspection")
		}
		close(release)
		synctest.Wait()
		if len(ended) != 2 {
			t.Fatalf("%d calls ended with the inspection, want both", len(ended))
		}
		for range 2 {
			kit.Must(t, <-ended)
		}
	})
}

// The first list after a break is confirmed if it lacks every pod: a caller that waits for it gets the answer
// of the list that confirms it.
func TestRelistAllAfterABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Runtime.Set("a", "c=running")
		p.StartBetweenLists(t)
		p.Runtime.SetListFault(plegtest.Fail(errInspect))
		kit.Relist(2)
		p.Runtime.SetListFault(nil)
		p.Runtime.Remove("a")
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- p.RelistAll(t.Context()) }()
		kit.Relist(2)
		if len(ended) == 0 {
			t.Fatalf("%v later the call has not ended, and the pod is gone: %v", time.Since(began), p.Cache().List())
		}
		if err := <-ended; err != nil || len(p.Cache().List()) > 0 {
			t.Errorf("RelistAll = %v, the pods are %v, want none", err, p.Cache().List())
		}
	})
}

// Of several pods that hang, the one that hangs longest decides the time of a bookmark.
func TestBookmarkOfSeveralHungPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		kit.Fill(p.Runtime, 4, "c=running")
		p.StartBetweenLists(t)
		all := p.Follow(t, pleg.SubscribeOptions{Bookmarks: true}, nil)
		var first time.Time
		for _, uid := range []pleg.PodUID{"p2", "p0", "p3"} {
			p.Runtime.SetPodFault(uid, plegtest.Hang)
			p.Runtime.Set(uid, "c=exited")
			if first.IsZero() {
				first = time.Now()
			}
			kit.Relist(15)
		}
		events := all.Events()
		if mark := events[len(events)-1]; mark.Type != pleg.Bookmark || mark.ObservedAt.After(first) {
			t.Errorf("the last mark is %s of %v, want a bookmark from before %v", mark.Type, mark.ObservedAt, first)
		}
	})
}
