package kubelet_test

import (
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
	sequences = flag.Int("sequences", 300, "random sequences that both generators are driven with")
	firstSeed = flag.Uint64("seed", 1, "seed of the first sequence; the next has the next")
)

// TestSameAsGenericPLEG drives the kubelet's GenericPLEG and this one with the
// same random sequences, and compares the events of each pod, the content of the
// pod cache and the times in it. The differences it lets pass are those that are
// meant: they are counted, so that a run says how often they were met.
func TestSameAsGenericPLEG(t *testing.T) {
	var met differences
	for i := range *sequences {
		seed := *firstSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			d := newDuel(t, seed)
			defer d.stop()
			d.fight()
			met.add(d.met)
		})
		if t.Failed() {
			t.Fatalf("after %d sequences: run again with -seed %d -sequences 1", i+1, seed)
		}
	}
	t.Logf("%d sequences, %d comparisons, %d events; addresses kept over a failed inspection %d times, vanished pods reported early %d times, early lists after a failed relist %d times",
		*sequences, met.comparisons, met.events, met.addresses, met.early, met.shifted)
}

// differences counts what was compared, and the intended differences.
type differences struct{ comparisons, events, addresses, early, shifted int }

func (d *differences) add(o differences) {
	d.comparisons += o.comparisons
	d.events += o.events
	d.addresses += o.addresses
	d.early += o.early
	d.shifted += o.shifted
}

// side is one of the two generators.
type side struct {
	node  *node
	cache *recorder
	pleg  interface {
		pleg.PodLifecycleEventGenerator
		Stop()
	}
	events map[types.UID][]string
}

func newSide(t *testing.T, stock bool) *side {
	s := &side{node: newNode(), cache: newRecorder(), events: make(map[types.UID][]string)}
	events := make(chan *pleg.PodLifecycleEvent, 1000)
	durations := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}
	if !stock {
		s.pleg = kubelet.New(logr.Discard(), s.node, events, durations, s.cache, clock.RealClock{})
		return s
	}
	generic, ok := pleg.NewGenericPLEG(logr.Discard(), s.node, events, durations, s.cache, clock.RealClock{}).(*pleg.GenericPLEG)
	if !ok {
		t.Fatal("NewGenericPLEG has not returned a GenericPLEG")
	}
	s.pleg = generic
	return s
}

// collect takes in the events sent so far, by pod.
func (s *side) collect() int {
	count := 0
	for _, e := range drain(s.pleg.Watch()) {
		uid, what, _ := strings.Cut(e, " ")
		s.events[types.UID(uid)] = append(s.events[types.UID(uid)], what)
		count++
	}
	return count
}

// duel is one sequence.
type duel struct {
	t           *testing.T
	stock, ours *side
	world       *world
	history     []string
	// failed are pods of which an inspection has failed, early those that ours
	// has reported gone before GenericPLEG lists again.
	failed, early map[types.UID]bool
	// shifted is set once a relist of one pod failed: ours then lists all pods
	// at once, and its next lists are at other times than GenericPLEG's.
	shifted bool
	met     differences
}

func newDuel(t *testing.T, seed uint64) *duel {
	d := &duel{
		t: t, stock: newSide(t, true), ours: newSide(t, false),
		failed: make(map[types.UID]bool), early: make(map[types.UID]bool),
	}
	d.world = newWorld(seed, d.stock.node, d.ours.node)
	return d
}

func (d *duel) stop() {
	d.stock.pleg.Stop()
	d.ours.pleg.Stop()
}

// fight changes the world between two lists, asks for relists of single pods,
// and compares after all pods have been listed.
func (d *duel) fight() {
	d.stock.pleg.Start()
	d.ours.pleg.Start()
	time.Sleep(500 * time.Millisecond)
	for range 3 + d.world.rand.IntN(20) {
		d.step()
		if d.t.Failed() {
			d.t.Logf("history:\n%s", strings.Join(d.history, "\n"))
			return
		}
	}
}

func (d *duel) step() {
	if d.world.failing && d.world.rand.IntN(2) == 0 {
		d.note(d.world.failLists(false))
	}
	for range d.world.rand.IntN(5) {
		d.note(d.world.mutate())
	}
	for d.world.rand.IntN(4) == 0 {
		uid := d.world.anyPod()
		d.note(fmt.Sprintf("reinspect %s", uid))
		d.stock.pleg.RequestReinspect(uid)
		d.ours.pleg.RequestReinspect(uid)
	}
	for range d.world.rand.IntN(4) {
		time.Sleep(50 * time.Millisecond)
		if !d.world.failing || d.world.rand.IntN(20) == 0 {
			d.relist(d.world.anyPod())
		}
	}
	d.noteFailures()
	d.times()
	time.Sleep(2 * time.Second)
	// Back to half a second after GenericPLEG's lists.
	time.Sleep(time.Second - time.Since(time.Now().Add(-500*time.Millisecond).Truncate(time.Second).Add(500*time.Millisecond)))
	synctest.Wait()
	d.compare()
}

func (d *duel) note(what string) {
	d.history = append(d.history, fmt.Sprintf("%s %s", time.Now().Format("05.000"), what))
}

// relist asks both for a relist of one pod.
func (d *duel) relist(uid types.UID) {
	d.note(fmt.Sprintf("relist %s", uid))
	d.stock.pleg.RequestRelist(uid)
	d.ours.pleg.RequestRelist(uid)
	synctest.Wait()
	switch _, known := d.ours.cache.statusTime(uid); {
	case d.world.failing:
		d.shifted = true
		d.met.shifted++
	case len(d.world.pods[uid]) == 0:
		d.early[uid], d.world.frozen[uid] = true, true
		if _, stock := d.stock.cache.statusTime(uid); stock && !known {
			d.met.early++
		}
	}
}

// noteFailures remembers which pods have lost a status in between.
func (d *duel) noteFailures() {
	for _, uid := range d.world.uids() {
		if _, err := d.ours.cache.Get(uid); err != nil || d.world.broken[uid] {
			d.failed[uid] = true
		}
	}
}

// times compares up to when the caches vouch for each pod.
func (d *duel) times() {
	if d.shifted {
		return
	}
	for _, uid := range d.world.uids() {
		if d.early[uid] {
			continue
		}
		if stock, ours := d.stock.cache.fresh(uid), d.ours.cache.fresh(uid); !stock.Equal(ours) {
			d.t.Errorf("pod %s: GenericPLEG vouches for it until %v, this one until %v", uid, stock, ours)
		}
		stock, has := d.stock.cache.statusTime(uid)
		if ours, ok := d.ours.cache.statusTime(uid); ok != has || !stock.Equal(ours) {
			d.t.Errorf("pod %s: GenericPLEG's status is of %v (%v), this one's of %v (%v)", uid, stock, has, ours, ok)
		}
	}
}

// compare compares everything, once both have listed all pods since the last
// change, unless lists fail.
func (d *duel) compare() {
	d.met.comparisons++
	d.met.events += d.stock.collect()
	d.ours.collect()
	d.noteFailures()
	if !d.world.failing {
		clear(d.early)
		clear(d.world.frozen)
	}
	for _, uid := range d.world.uids() {
		if d.early[uid] {
			continue
		}
		if stock, ours := d.stock.events[uid], d.ours.events[uid]; !slices.Equal(stock, ours) {
			d.t.Errorf("pod %s: events of GenericPLEG %q, of this one %q", uid, stock, ours)
		}
		d.statuses(uid)
		if len(d.world.pods[uid]) == 0 && !d.world.failing {
			delete(d.failed, uid)
		}
	}
	d.times()
	if n := d.ours.cache.steppedBack(); n > 0 {
		d.t.Errorf("%d times of the cache went backwards", n)
	}
	stock, _ := d.stock.pleg.Healthy()
	if ours, err := d.ours.pleg.Healthy(); ours != stock {
		d.t.Errorf("GenericPLEG is healthy: %v; this one: %v, %v", stock, ours, err)
	}
}

// statuses compares what the two caches have of a pod.
func (d *duel) statuses(uid types.UID) {
	stock, stockErr := d.stock.cache.Get(uid)
	ours, oursErr := d.ours.cache.Get(uid)
	if stockErr != oursErr { //nolint:errorlint // the very error, not one that wraps it
		d.t.Errorf("pod %s: GenericPLEG's cache has the error %v, this one's %v", uid, stockErr, oursErr)
		return
	}
	if d.shifted && ours != nil {
		same := *ours
		same.TimeStamp = stock.TimeStamp
		ours = &same
	}
	if reflect.DeepEqual(stock, ours) {
		return
	}
	if d.keptAddress(uid, stock, ours) {
		d.met.addresses++
		return
	}
	d.t.Errorf("pod %s: GenericPLEG's cache has\n%+v\nthis one's\n%+v", uid, stock, ours)
}

// keptAddress reports whether all that differs is that ours has kept the address
// of a pod over a failed inspection.
func (d *duel) keptAddress(uid types.UID, stock, ours *kubecontainer.PodStatus) bool {
	if stock == nil || ours == nil || !d.failed[uid] || stock.IPs != nil || !slices.Equal(ours.IPs, []string{address(uid)}) {
		return false
	}
	same := *ours
	same.IPs = nil
	return reflect.DeepEqual(stock, &same)
}
