package faults_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// mode is how a pipeline learns of changes.
type mode struct {
	events pipeline.EventsMode
	unary  bool // lists
}

func (m mode) String() string {
	if m.events == pipeline.EventsOff {
		return "polling"
	}
	return "events"
}

var modes = []mode{{events: pipeline.EventsOff}, {events: pipeline.EventsAuto}}

// The times of the matrix in units: a fault that holds always, or at random,
// does so from faultsFrom to faultsUntil, one that hits once may last to the end.
const (
	faultsFrom  = 3
	faultsUntil = 9
	matrixEnd   = 12
	matrixRate  = 3 // steps in a unit
	// lastLook is when Healthy is asked, with the faults still there.
	lastLook = faultsUntil - 0.1
	// rest is long enough for a list, and for what waits for one.
	rest = 6
	// restWithEvents is the longest wait before a new stream, and for the list
	// behind it.
	restWithEvents = 25
)

// fault makes one case of the matrix of what the row and the column say.
func (r row) fault(when schedule.When, unit time.Duration) schedule.Fault {
	f := r.Fault
	switch when {
	case schedule.Once:
		f.After, f.Times = 3, 1
		if r.Call == "GetContainerEvents" { // which is called when it breaks
			f.After, f.From = 0, schedule.Time(faultsFrom*unit)
		}
	case schedule.Random:
		f.Probability, f.Seed = 0.6, 7
		fallthrough
	case schedule.Always:
		f.From, f.Until = schedule.Time(faultsFrom*unit), schedule.Time(faultsUntil*unit)
	}
	if f.Kind == schedule.Slow {
		f.Delay = schedule.Time(unit * 4 / 5)
	}
	return f
}

// TestFaultMatrix is every call that the pipeline makes, spoiled in every way,
// once, always and at random, with and without events.
func TestFaultMatrix(t *testing.T) {
	for n, r := range rows() {
		for _, when := range []schedule.When{schedule.Once, schedule.Always, schedule.Random} {
			for _, m := range modes {
				if m.events == pipeline.EventsOff && r.onlyEvents() {
					continue
				}
				m.unary = strings.HasPrefix(r.Call, "List") && r.Kind != schedule.Panic
				t.Run(fmt.Sprintf("%s/%s/%s/%v", r.Call, r.name(), when, m), func(t *testing.T) {
					t.Parallel()
					s := draw(t, uint64(n), time.Second)
					s.Faults = []schedule.Fault{r.fault(when, time.Second)}
					synctest.Test(t, func(t *testing.T) {
						if inBubble(t, s, m, r.healthy(when)) == 0 {
							t.Error("no call was spoiled: this tests nothing")
						}
					})
				})
			}
		}
	}
}

// draw draws the steps of a case.
func draw(t *testing.T, seed uint64, unit time.Duration) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Draw(t.Context(), schedule.Options{
		Seed: seed, Pods: 3, Rate: matrixRate / unit.Seconds(), Duration: matrixEnd * unit,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// health is what Healthy has to say shortly before faults are lifted.
type health int

const (
	eitherWay health = iota
	good
	bad
)

// inBubble plays a schedule over an in-memory connection, on the fake clock, and
// returns the number of calls that were spoiled.
func inBubble(t *testing.T, s *schedule.Schedule, m mode, want health) int {
	t.Helper()
	defer tell(t, s, m)
	listener := bufconn.Listen(1 << 20)
	b := newBed(t, s, time.Second, listener, func(ctx context.Context) (net.Conn, error) { return listener.DialContext(ctx) }, m)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		time.Sleep((faultsFrom + 1) * time.Second)
		b.callVersion()
		time.Sleep(time.Duration(lastLook*float64(time.Second)) - time.Since(b.client.start))
		if ok, err := b.pipe.Healthy(); want != eitherWay && ok != (want == good) {
			t.Errorf("with the fault still there healthy is %t, %v", ok, err)
		}
	}()
	b.play()
	<-looked
	wait := rest * time.Second
	if m.events != pipeline.EventsOff {
		wait = restWithEvents * time.Second
	}
	time.Sleep(wait)
	b.reinspectDoubtful()
	if diff := b.differs(); diff != "" {
		t.Errorf("the cache is not right %v after the end:\n%s", wait, diff)
	}
	b.judge(promised(s, m))
	return b.spoiled()
}

// reinspectDoubtful has the pods inspected once more if a status call has denied
// that there is what the list has, which is believed.
func (b *bed) reinspectDoubtful() {
	for _, f := range b.s.Faults {
		if f.Code != "NotFound" {
			continue
		}
		for _, p := range b.rt.Pods() {
			b.pipe.RequestReinspect(pleg.PodUID(p.UID))
		}
		time.Sleep(5 * time.Second)
	}
}

// callVersion calls Version if a fault is about it, as the pipeline seldom does, and
// wants an answer in time, which tells of what always fails.
func (b *bed) callVersion() {
	for _, f := range b.s.Faults {
		if f.Call != "Version" {
			continue
		}
		fails := f.Times == 0 && f.Probability == 0 && f.Kind != schedule.Slow
		for range 5 {
			began := time.Now()
			_, err := b.client.Check(context.Background())
			if took := time.Since(began); took > 2*b.unit || fails && err == nil {
				b.t.Errorf("Check took %v and says %v", took, err)
			}
		}
	}
}

// judge demands what holds after every case, and ends it.
func (b *bed) judge(p promise) {
	if ok, err := b.pipe.Healthy(); !ok {
		b.t.Errorf("healthy is %t in the end: %v", ok, err)
	}
	b.ledger.check(b.t, b.end(), p)
}
