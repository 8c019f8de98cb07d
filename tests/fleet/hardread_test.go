package fleet_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// States that change between the begin of a read and the next answer of a server that is far away do
// not make it one that is behind the others.
func TestFarReaderInChurn(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	js := jetStream(t, connect(t, s.URL))
	kit.Must(t, fleet.Create(t.Context(), js, fleet.Limits{}))
	const pods = 2000
	put := func(key, value string) {
		if _, err := js.Publish(t.Context(), "$KV.pleg-state.test_example.node-a"+key, []byte(value)); err != nil {
			t.Error(err)
		}
	}
	putPod := func(i int) { put(fmt.Sprintf(".default.%d", i%pods), `{"epoch":"e","seq":1,"events":[]}`) }
	put("", `{"epoch":"e","seq":1}`)
	for i := range pods {
		putPod(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	defer churn.Wait()
	defer cancel()
	churn.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			putPod(i * 7)
		}
	})
	path := newRelay(t, s.URL)
	states := openStates(t, path.url)
	path.delay.Store(int64(5 * time.Millisecond))
	for range 5 {
		got := 0
		for _, err := range states.Pods(t.Context(), nil, nil) {
			kit.Must(t, err)
			got++
		}
		if got != pods {
			t.Errorf("%d pods, want %d", got, pods)
		}
	}
}

// A part whose states cannot be read makes all begin again, but less and less often.
func TestUnreadablePart(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	js := jetStream(t, connect(t, s.URL))
	kit.Must(t, fleet.Create(t.Context(), js, fleet.Limits{Parts: parts}))
	states, err := js.Stream(t.Context(), "KV_"+inPart(fleet.StateBucket, 1))
	if err == nil {
		err = js.DeleteStream(t.Context(), states.CachedInfo().Config.Name)
	}
	if err == nil {
		config := states.CachedInfo().Config
		config.MaxConsumers = 1
		states, err = js.CreateStream(t.Context(), config)
	}
	if err == nil {
		_, err = states.CreateConsumer(t.Context(), jetstream.ConsumerConfig{}) // the only one
	}
	kit.Must(t, err)
	var waits []time.Duration
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := fleet.WatchOptions{Cluster: cluster, Replay: true, Disconnected: func(_ error, retryIn time.Duration) {
		if waits = append(waits, retryIn); len(waits) == 4 {
			cancel()
		}
	}}
	for _, err := range fleet.Watch(ctx, js, o) {
		kit.Must(t, err)
	}
	if len(waits) < 4 || waits[3] < 4*fleet.DefaultMinBackoff {
		t.Errorf("attempts after %v, want that the time doubles", waits)
	}
}

// A consumer that takes longer for a Gap than a connection may take to begin gets it once.
func TestLongTimeForAGap(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	js := jetStream(t, connect(t, s.URL))
	kit.Must(t, fleet.Create(t.Context(), js, fleet.Limits{}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	gaps := 0
	for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: cluster, After: new(fleet.Position)}) {
		kit.Must(t, err)
		if ev.Type == pleg.Synced {
			return
		}
		if gaps++; gaps > 1 {
			t.Fatalf("%v after the Gap", ev.Type)
		}
		time.Sleep(11 * time.Second)
	}
	t.Error("no Synced")
}
