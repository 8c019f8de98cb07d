package dispatcher_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestSubscribersShareSelectors has several subscribers with the same selector, whose
// members leave and join again, and pods that change their labels.
func TestSubscribersShareSelectors(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		web, tools := map[string]string{"app": "web"}, map[string]string{"app": "tools"}
		subscribe := func() *dispatcher.Subscription {
			return f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}, Replay: true})
		}
		first, second := subscribe(), subscribe()
		other := f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app!=web"}})
		f.publishLabelled("a", "Started(1)", web)
		f.publishLabelled("b", "Started(2)", tools)
		f.publishLabelled("c", "Started(3)", map[string]string{})
		f.publishLabelled("a", "Started(4)", web)
		first.Close()
		f.publishLabelled("a", "Started(5)", tools)
		f.publishLabelled("b", "Started(6)", map[string]string{"app": "web"})
		f.publishLabelled("a", "Started(8)", tools)
		third := subscribe()
		f.publishLabelled("c", "Started(7)", web)
		requireRead(t, first, ":Synced() a:Started(1) a:Started(4)")
		requireRead(t, second, ":Synced() a:Started(1) a:Started(4) b:Started(6) c:Started(7)")
		requireRead(t, third, "b:Started(2) b:Started(6) :Synced() c:Started(7)")
		requireRead(t, other, "b:Started(2) c:Started(3) a:Started(5) a:Started(8)")
	})
}

// TestSubscribersWaitForLabels has two subscribers that join while the labels of a pod are
// not known.
func TestSubscribersWaitForLabels(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		web := map[string]string{"app": "web"}
		f.publishLabelled("a", "Started(1)", nil)
		f.publishLabelled("b", "Started(2)", web)
		f.publishLabelled("c", "Started(3)", map[string]string{"app": "mail"})
		first := f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}, Replay: true})
		second := f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=tools"}, Replay: true})
		f.publishLabelled("a", "Started(4)", web)
		requireRead(t, first, "a:Started(1) b:Started(2) :Synced() a:Started(4)")
		requireRead(t, second, ":Synced()")
	})
}

// As long as the newest listing is not settled for a pod, its labels may still come: the
// subscriber gets its events and no PodSync for them.
func TestLabelsOfAPodThatIsBehindMayStillCome(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		s := f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}})
		f.publishLabelled("a", "Started(1)", nil)
		f.marks <- stage.Mark{Current: at(2), Behind: []stage.Behind{{Pod: plegtest.Pod("a", ""), Until: at(1)}}}
		requireRead(t, s, "")
		f.publishLabelled("a", "Started(2)", map[string]string{"app": "web"})
		requireRead(t, s, "a:Started(1) a:Started(2)")
		f.publishLabelled("b", "Started(1)", nil)
		f.marks <- stage.Mark{Current: at(3)}
		requireRead(t, s, "b:PodSync*1")
	})
}

// An event that waits for labels does not overtake those that were missed before it.
func TestWaitingForLabelsKeepsTheOrder(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		web := map[string]string{"app": "web"}
		s := f.subscribe(t, pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}, Buffer: 1})
		f.publishLabelled("a", "Started(1)", web)
		f.publishLabelled("a", "Started(2)", web)
		f.publishLabelled("b", "Started(3)", nil)
		f.publishLabelled("b", "Started(4)", web)
		requireRead(t, s, "a:Started(1) a:PodSync*1 b:PodSync*2")
	})
}

// BenchmarkSelectors publishes the two events of a pod to 1000 subscribers that want
// other pods, each with the longest selector that is allowed.
func BenchmarkSelectors(b *testing.B) {
	for name, suffix := range map[string]func(int) string{
		"shared":   func(int) string { return "x" },
		"distinct": func(n int) string { return fmt.Sprint(n) },
	} {
		b.Run("selectors="+name, func(b *testing.B) {
			d, err := dispatcher.New(dispatcher.Options{History: 1, SlowAfter: 1 << 40, Logger: discard})
			kit.Must(b, err)
			for n := range 1000 {
				selector := strings.Repeat("!absent.example.com/name,", 63) + "app=" + suffix(n)
				if _, err := d.Subscribe(pleg.SubscribeOptions{Filter: pleg.Filter{Selector: selector}}); err != nil {
					b.Fatal(err)
				}
			}
			in, ended := make(chan stage.Outcome), make(chan error)
			go func() { ended <- d.Run(in, nil) }()
			pods := [2]stage.Outcome{outcome("a", "Started(1) Started(1)"), outcome("b", "Started(2) Started(2)")}
			for i := range pods {
				pods[i].Pod.Labels = map[string]string{"app": "web", "tier": "front", "pod-template-hash": "5d4f8"}
			}
			in <- pods[0]
			for n := 0; b.Loop(); n++ {
				in <- pods[n%2]
			}
			close(in)
			kit.Must(b, <-ended)
		})
	}
}
