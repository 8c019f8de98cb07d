package kubelet_test

import (
	"context"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet"
)

var (
	sequences = flag.Int("sequences", 300, "number of random sequences")
	firstSeed = flag.Uint64("seed", 1, "seed of the first sequence; others count up from it")
)

// TestSameAsGenericPLEG runs the kubelet's GenericPLEG and this generator with the same random
// changes. It compares the events of each pod, and the content and times of the pod cache. Three
// differences are intended: an address that is kept after a failed
// inspection, a removed pod that is reported early, and an early list after a failed relist.
func TestSameAsGenericPLEG(t *testing.T) {
	for i := range *sequences {
		seed := *firstSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			c := newComparison(t, seed)
			defer c.stop()
			c.run()
		})
		if t.Failed() {
			t.Fatalf("after %d sequences: run again with -seed %d -sequences 1", i+1, seed)
		}
	}
}

// generator is GenericPLEG or the pipeline, with its runtime and cache.
type generator struct {
	runtime *fakeRuntime
	cache   *recorder
	pleg    pleg.PodLifecycleEventGenerator
	stop    func()
	events  map[types.UID][]string
}

func newGenerator(stock bool) *generator {
	s := &generator{runtime: newFakeRuntime(), cache: newRecorder(), events: make(map[types.UID][]string)}
	events := make(chan *pleg.PodLifecycleEvent, 1000)
	durations := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}
	s.pleg = kubelet.New(s.runtime, events, durations, s.cache, clock.RealClock{})
	if stock {
		s.pleg = pleg.NewGenericPLEG(s.runtime, events, durations, s.cache, clock.RealClock{})
	}
	return s
}

// start starts the generator, which runs until stop.
func (s *generator) start(t *testing.T) {
	ctx, cancel := context.WithCancel(quiet(t))
	s.stop = cancel
	if generic, ok := s.pleg.(*pleg.GenericPLEG); ok { // GenericPLEG does not end with its context
		s.stop = func() { cancel(); generic.Stop() }
	}
	s.pleg.Start(ctx)
}

// collect stores the events sent so far by pod.
func (s *generator) collect() {
	for _, e := range drain(s.pleg.Watch()) {
		uid, what, _ := strings.Cut(e, " ")
		s.events[types.UID(uid)] = append(s.events[types.UID(uid)], what)
	}
}

// comparison runs both generators with one random sequence.
type comparison struct {
	t           *testing.T
	stock, ours *generator
	changes     *random
	history     []string
	// failed are pods with a failed inspection. early are removed pods that ours
	// reported before the next list of GenericPLEG.
	failed, early map[types.UID]bool
	// shifted is set after a failed single-pod relist: ours then lists all pods at
	// once, so its lists are no longer at the times of GenericPLEG.
	shifted bool
}

func newComparison(t *testing.T, seed uint64) *comparison {
	c := &comparison{
		t: t, stock: newGenerator(true), ours: newGenerator(false),
		failed: make(map[types.UID]bool), early: make(map[types.UID]bool),
	}
	c.changes = newRandom(seed, c.stock.runtime, c.ours.runtime)
	return c
}

func (c *comparison) stop() {
	c.stock.stop()
	c.ours.stop()
	synctest.Wait()
}

// run changes pods between two lists, requests single-pod relists, and compares
// after the next list.
func (c *comparison) run() {
	c.stock.start(c.t)
	c.ours.start(c.t)
	time.Sleep(500 * time.Millisecond)
	for range 3 + c.changes.rand.IntN(20) {
		c.step()
		if c.t.Failed() {
			c.t.Logf("history:\n%s", strings.Join(c.history, "\n"))
			return
		}
	}
}

func (c *comparison) step() {
	if c.changes.failing && c.changes.rand.IntN(2) == 0 {
		c.log(c.changes.failLists(false))
	}
	for range c.changes.rand.IntN(5) {
		c.log(c.changes.mutate())
	}
	for c.changes.rand.IntN(4) == 0 {
		uid := c.changes.anyPod()
		c.log(fmt.Sprintf("reinspect %s", uid))
		c.stock.pleg.RequestReinspect(uid)
		c.ours.pleg.RequestReinspect(uid)
	}
	for range c.changes.rand.IntN(4) {
		time.Sleep(50 * time.Millisecond)
		if !c.changes.failing || c.changes.rand.IntN(20) == 0 {
			c.relist(c.changes.anyPod())
		}
	}
	c.noteFailures()
	c.compareTimes()
	time.Sleep(2 * time.Second)
	// Wait until half a second after a list of GenericPLEG.
	time.Sleep(time.Second - time.Since(time.Now().Add(-500*time.Millisecond).Truncate(time.Second).Add(500*time.Millisecond)))
	synctest.Wait()
	c.compare()
}

func (c *comparison) log(what string) {
	c.history = append(c.history, fmt.Sprintf("%s %s", time.Now().Format("05.000"), what))
}

// relist requests a single-pod relist from both.
func (c *comparison) relist(uid types.UID) {
	c.log(fmt.Sprintf("relist %s", uid))
	c.stock.pleg.RequestRelist(logr.Discard(), uid)
	c.ours.pleg.RequestRelist(logr.Discard(), uid)
	synctest.Wait()
	switch {
	case c.changes.failing:
		c.shifted = true
	case len(c.changes.pods[uid]) == 0:
		c.early[uid], c.changes.absent[uid] = true, true
	}
}

// noteFailures adds the pods whose inspection fails to failed.
func (c *comparison) noteFailures() {
	for _, uid := range c.changes.uids() {
		if _, err := c.ours.cache.status(uid); err != nil || c.changes.broken[uid] {
			c.failed[uid] = true
		}
	}
}

// compareTimes compares the times of both caches.
func (c *comparison) compareTimes() {
	if c.shifted {
		return
	}
	for _, uid := range c.changes.uids() {
		if c.early[uid] {
			continue
		}
		if stock, ours := c.stock.cache.newest(uid), c.ours.cache.newest(uid); !stock.Equal(ours) {
			c.t.Errorf("pod %s: its time is %v in GenericPLEG, %v in the pipeline", uid, stock, ours)
		}
		stock, has := c.stock.cache.statusTime(uid)
		if ours, ok := c.ours.cache.statusTime(uid); ok != has || !stock.Equal(ours) {
			c.t.Errorf("pod %s: its status is of %v (%v) in GenericPLEG, of %v (%v) in the pipeline", uid, stock, has, ours, ok)
		}
	}
}

// compare compares everything. Both generators have listed all pods since the last
// change, unless lists fail.
func (c *comparison) compare() {
	c.stock.collect()
	c.ours.collect()
	c.noteFailures()
	if !c.changes.failing {
		clear(c.early)
		clear(c.changes.absent)
	}
	for _, uid := range c.changes.uids() {
		if c.early[uid] {
			continue
		}
		if stock, ours := c.stock.events[uid], c.ours.events[uid]; !slices.Equal(stock, ours) {
			c.t.Errorf("pod %s: events of GenericPLEG %q, of the pipeline %q", uid, stock, ours)
		}
		c.compareStatuses(uid)
		if len(c.changes.pods[uid]) == 0 && !c.changes.failing {
			delete(c.failed, uid)
		}
	}
	c.compareTimes()
	if n := c.ours.cache.backwardSteps(); n > 0 {
		c.t.Errorf("%d times of the cache went back", n)
	}
	stock, _ := c.stock.pleg.Healthy()
	if ours, err := c.ours.pleg.Healthy(); ours != stock {
		c.t.Errorf("healthy: GenericPLEG %v, pipeline %v, %v", stock, ours, err)
	}
}

// compareStatuses compares the status of a pod in both caches.
func (c *comparison) compareStatuses(uid types.UID) {
	stock, stockErr := c.stock.cache.status(uid)
	ours, oursErr := c.ours.cache.status(uid)
	if stockErr != oursErr { //nolint:errorlint // must be the same error, not wrapped
		c.t.Errorf("pod %s: error in the cache of GenericPLEG %v, of the pipeline %v", uid, stockErr, oursErr)
		return
	}
	if c.shifted && ours != nil {
		same := *ours
		same.TimeStamp = stock.TimeStamp
		ours = &same
	}
	if reflect.DeepEqual(stock, ours) || c.keptAddress(uid, stock, ours) {
		return
	}
	c.t.Errorf("pod %s: cache of GenericPLEG\n%+v\nof the pipeline\n%+v", uid, stock, ours)
}

// keptAddress reports whether the only difference is the address that ours kept
// after a failed inspection.
func (c *comparison) keptAddress(uid types.UID, stock, ours *kubecontainer.PodStatus) bool {
	if stock == nil || ours == nil || !c.failed[uid] || stock.IPs != nil || !slices.Equal(ours.IPs, []string{address(uid)}) {
		return false
	}
	same := *ours
	same.IPs = nil
	return reflect.DeepEqual(stock, &same)
}
