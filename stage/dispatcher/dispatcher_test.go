package dispatcher_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

func TestEverySubscriberGetsEveryEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, instrument.Registry{})
		early := b.subscribe(t, dispatcher.SubscribeOptions{})
		b.run(t)
		late := b.subscribe(t, dispatcher.SubscribeOptions{})
		b.publish("a", "Started(c) Changed(d) Started(/s)")
		later := b.subscribe(t, dispatcher.SubscribeOptions{})
		b.publish("b", "Changed(c)")
		b.publish("a", "Died(c) PodSync")
		const first, second = "a:Started(c) a:Started(/s)", "a:Died(c) a:PodSync"
		requireRead(t, later, second)
		requireRead(t, early, first+" "+second)
		got := read(t, late)
		if tell(got) != first+" "+second {
			t.Errorf("got %q", tell(got))
		}
		// ContainerChanged takes no number.
		if want := []uint64{1, 2, 3, 4}; !slices.Equal(seqs(got), want) {
			t.Errorf("numbers = %v, want %v", seqs(got), want)
		}
	})
}

func TestFullSubscriberGetsOnePodSyncForEachPodItMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		buffer int
		// events are published one by one; "read" takes one, "pods" all.
		events string
		want   string
	}{
		"nothing missed":                {2, "a:1 b:1", "a:Started(1) b:Started(1)"},
		"one of many":                   {1, "a:1 b:1 b:2 b:3", "a:Started(1) b:PodSync*3"},
		"each pod once":                 {1, "a:1 b:1 c:1 b:2 c:2", "a:Started(1) b:PodSync*2 c:PodSync*2"},
		"oldest last first":             {1, "a:1 b:1 c:1 d:1 b:2 c:2 b:3", "a:Started(1) d:PodSync*1 c:PodSync*2 b:PodSync*3"},
		"of the buffer too":             {1, "a:1 a:2 a:3", "a:Started(1) a:PodSync*2"},
		"in hand, same pod":             {1, "a:1 b:1 b:2", "a:Started(1) b:PodSync*2"},
		"live after repairs":            {1, "a:1 b:1 pods c:1", "a:Started(1) b:PodSync*1 c:Started(1)"},
		"missed anew":                   {1, "a:1 b:1 read b:2 c:1", "a:Started(1) b:PodSync*1 b:PodSync*1 c:PodSync*1"},
		"repair read, same pod follows": {1, "a:1 b:1 read read b:2", "a:Started(1) b:PodSync*1 b:Started(2)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := running(t)
				s := b.subscribe(t, dispatcher.SubscribeOptions{Buffer: tc.buffer})
				all := b.subscribe(t, dispatcher.SubscribeOptions{})
				var got []pleg.Event
				for word := range strings.FieldsSeq(tc.events) {
					uid, id, _ := strings.Cut(word, ":")
					switch word {
					case "read":
						got = append(got, <-s.Events())
						time.Sleep(noticed)
						synctest.Wait()
					case "pods":
						got = append(got, read(t, s)...)
					default:
						b.publish(pleg.PodUID(uid), "Started("+id+")")
					}
				}
				got = append(got, read(t, s)...)
				if tell(got) != tc.want {
					t.Errorf("got %q, want %q", tell(got), tc.want)
				}
				if !slices.IsSortedFunc(got, func(a, b pleg.Event) int { return int(a.Seq) - int(b.Seq) }) || len(slices.Compact(seqs(got))) != len(got) {
					t.Errorf("numbers = %v, want them to grow", seqs(got))
				}
				sum, published := uint64(0), read(t, all)
				for _, ev := range got {
					sum += max(1, ev.Missed)
				}
				if sum != uint64(len(published)) {
					t.Errorf("events told of = %d, want %d", sum, len(published))
				}
			})
		})
	}
}

// The subscriber reads, and the next event comes before the feeder has gone on:
// there is room, and yet the event has to wait its turn.
func TestNothingOvertakesARepair(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := running(t)
			s := b.subscribe(t, dispatcher.SubscribeOptions{Buffer: 2})
			b.publish("a", "Started(c) Died(c)")
			for _, uid := range []pleg.PodUID{"b", "c", "d", "e"} {
				b.publish(uid, "Started(c)")
			}
			<-s.Events()
			<-s.Events()
			b.publish("f", "Started(c)")
			got := []pleg.Event{<-s.Events(), <-s.Events()}
			b.publish("g", "Started(c)")
			got = append(got, read(t, s)...)
			const want = "b:PodSync*1 c:PodSync*1 d:PodSync*1 e:PodSync*1 f:Started(c) g:Started(c)"
			if words := tell(got); words != want {
				t.Errorf("got %q, want %q", words, want)
			}
		})
	}
}

func TestRepairSaysWhatItIsAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := running(t)
		s := b.subscribe(t, dispatcher.SubscribeOptions{Buffer: 1})
		b.publish("a", "Started(c)")
		b.publish("b", "Started(c) Died(c)")
		got := read(t, s)[1]
		want := pleg.Event{
			Seq: 3, Type: pleg.PodSync, PodUID: "b", PodName: "name-b", PodNamespace: "ns", Missed: 2, ObservedAt: at(1),
		}
		if got != want {
			t.Errorf("repair = %+v, want %+v", got, want)
		}
	})
}

func TestCloseEndsTheSubscription(t *testing.T) {
	for name, closes := range map[string]func(t *testing.T, b *bed, s *dispatcher.Subscription){
		"while idle":         func(*testing.T, *bed, *dispatcher.Subscription) {},
		"with events unread": func(_ *testing.T, b *bed, _ *dispatcher.Subscription) { b.publish("a", "Started(c)") },
		"with a repair in hand": func(_ *testing.T, b *bed, _ *dispatcher.Subscription) {
			b.publish("a", "Started(c)")
			b.publish("b", "Started(c)")
			b.publish("c", "Started(c)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := running(t)
				s, other := b.subscribe(t, dispatcher.SubscribeOptions{Buffer: 1}), b.subscribe(t, dispatcher.SubscribeOptions{})
				closes(t, b, s)
				read(t, other)
				s.Close()
				s.Close()
				requireClosed(t, s)
				b.publish("z", "Started(c)")
				requireRead(t, other, "z:Started(c)")
				s.Close()
				synctest.Wait()
				b.stop()
				requireClosed(t, other)
				s.Close()
				other.Close()
			})
		})
	}
}

func TestCloseBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, instrument.Registry{})
		s := b.subscribe(t, dispatcher.SubscribeOptions{})
		s.Close()
		b.run(t)
		requireClosed(t, s)
	})
}

func TestCloseDuringDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := running(t)
		var closing sync.WaitGroup
		for n := range 50 {
			s := b.subscribe(t, dispatcher.SubscribeOptions{Buffer: 1 + n%3})
			for range 2 {
				closing.Go(s.Close)
			}
			closing.Go(func() {
				for range s.Events() { // until it is closed
				}
			})
			b.in <- outcome("a", n)
		}
		closing.Wait()
	})
}

func TestEndClosesEveryChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, instrument.Registry{})
		b.run(t)
		s := b.subscribe(t, dispatcher.SubscribeOptions{Buffer: 2})
		b.publish("a", "Started(c) Died(c) Removed(c)")
		joining := b.subscribe(t, dispatcher.SubscribeOptions{})
		b.stop()
		if err := <-b.ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if got := tell(read(t, s)); got != "a:Started(c) a:Died(c)" {
			t.Errorf("after the end got %q, want what was in the buffer", got)
		}
		requireClosed(t, s)
		requireClosed(t, joining)
		if _, err := b.Subscribe(dispatcher.SubscribeOptions{}); !errors.Is(err, dispatcher.ErrStopped) {
			t.Errorf("Subscribe after the end = %v, want ErrStopped", err)
		}
	})
}

func TestSubscribeNamesTheBadOption(t *testing.T) {
	b := newBed(t, instrument.Registry{})
	for field, o := range map[string]dispatcher.SubscribeOptions{
		"Buffer":   {Buffer: -1},
		"Name":     {Name: "bad\xff"}, // no metric can bear it
		"Types":    {Types: []pleg.EventType{"ContainerBorn"}},
		"Selector": {Selector: "a in"},
		"Replay":   {Replay: true, After: dispatcher.Position{Seq: 1}},
	} {
		if _, err := b.Subscribe(o); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Subscribe(%+v) = %v, want an error that names %s", o, err, field)
		}
	}
}

func TestManySubscribersOfWhomSomeNeverRead(t *testing.T) {
	const subscribers, asleep, pods = 1000, 10, 5
	synctest.Test(t, func(t *testing.T) {
		b := running(t)
		var all []*dispatcher.Subscription
		for n := range subscribers {
			o := dispatcher.SubscribeOptions{Buffer: 2 * pods}
			if n < asleep {
				o.Buffer = 1
			}
			all = append(all, b.subscribe(t, o))
		}
		want := ""
		for n := range pods {
			b.publish(pleg.PodUID(fmt.Sprint(n)), "Started(c) Died(c)")
			want += fmt.Sprintf("%d:Started(c) %d:Died(c) ", n, n)
		}
		for _, s := range all[asleep:] {
			if got := tell(read(t, s)) + " "; got != want {
				t.Fatalf("subscriber %s got %q, want %q", s.Name(), got, want)
			}
		}
		for _, s := range all[:asleep] {
			got := read(t, s)
			if len(got) != pods+1 || got[0].Missed != 0 || got[1].Missed != 1 || got[pods].Missed != 2 {
				t.Errorf("subscriber %s, which slept, got %q", s.Name(), tell(got))
			}
		}
	})
}
