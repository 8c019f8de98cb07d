package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// bed is a pipeline on a simulated runtime that a schedule is played on. All
// times are multiples of its unit, a second on a fake clock and less on a real
// one.
type bed struct {
	t      *testing.T
	s      *schedule.Schedule
	unit   time.Duration
	rt     *simruntime.Runtime
	client *embedded
	pipe   *pipeline.Pipeline
	sub    *pipeline.Subscription
	ledger *ledger
	steps  int
	stop   context.CancelFunc
	group  errgroup.Group
}

const (
	relistThreshold           = 3 // units
	relistThresholdWithEvents = 5
	listTimeout               = 2
	inspectTimeout            = 3
)

// newBed runs a pipeline on what listener is the other end of dial.
func newBed(t *testing.T, s *schedule.Schedule, unit time.Duration, listener net.Listener, dial func(context.Context) (net.Conn, error), mode mode) *bed {
	t.Helper()
	rt, err := s.Runtime(simruntime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := cri.New("/simulated", cri.Options{
		ListTimeout: listTimeout * unit, StatusTimeout: inspectTimeout * unit, ConnectTimeout: unit, UnaryLists: mode.unary,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, s: s, unit: unit, rt: rt, client: newEmbedded(client, s), ledger: newLedger()}
	// Never at the moment of a step: of two observations of one moment of a clock
	// that stands still nobody can tell which is newer.
	period := unit + unit/1000
	b.pipe, err = pipeline.New(pipeline.Options{
		Runtime: b.client, Events: mode.events,
		RelistPeriod: period, RelistPeriodWithEvents: 4 * period,
		RelistThreshold: relistThreshold * unit, RelistThresholdWithEvents: relistThresholdWithEvents * unit,
		ListTimeout: listTimeout * unit, InspectTimeout: inspectTimeout * unit,
	})
	if err != nil {
		t.Fatal(err)
	}
	if b.sub, err = b.pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 1 << 14}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.group.Go(func() error { return ended(rt.Serve(ctx, listener)) })
	b.group.Go(func() error { return ended(b.pipe.Run(ctx)) })
	return b
}

func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// play plays the schedule. Besides what it does, pods are asked for: at each
// third step a relist of its pod, at each fourth a reinspection.
func (b *bed) play() schedule.Played {
	b.t.Helper()
	b.ledger.note(b.rt.Pods())
	uids := make(map[string]string)
	played, err := b.s.Play(context.Background(), b.rt, schedule.PlayOptions{Observe: func(step schedule.Step) {
		pods := b.rt.Pods()
		b.ledger.note(pods)
		for _, p := range pods {
			uids[p.Namespace+"/"+p.Name] = p.UID
		}
		uid := pleg.PodUID(uids[step.Pod])
		b.steps++
		if b.steps%3 == 0 {
			b.pipe.RequestRelist(uid)
		}
		if b.steps%4 == 0 {
			b.pipe.RequestReinspect(uid)
		}
	}})
	if err != nil || played.PassedOver > 0 {
		b.t.Errorf("played %+v, %v", played, err)
	}
	return played
}

// spoiled returns the number of calls that a fault has hit.
func (b *bed) spoiled() int {
	b.client.mu.Lock()
	n := b.client.hits
	b.client.mu.Unlock()
	for _, rpc := range b.rt.Stats().RPCs {
		n += int(rpc.Spoiled)
	}
	return n
}

// differs returns how the cache differs from the runtime; empty if it does not.
func (b *bed) differs() string {
	var out strings.Builder
	for _, want := range b.rt.Pods() {
		got, err := b.pipe.Cache().Get(pleg.PodUID(want.UID))
		if err != nil {
			fmt.Fprintf(&out, "pod %s: %v\n", want.UID, err)
			continue
		}
		if len(got.Containers) != len(want.Containers) || len(got.Sandboxes) != len(want.Sandboxes) {
			fmt.Fprintf(&out, "pod %s has %d containers and %d sandboxes in the cache, want %d and %d\n", want.UID,
				len(got.Containers), len(got.Sandboxes), len(want.Containers), len(want.Sandboxes))
		}
		for _, c := range want.Containers {
			st := got.Container(pleg.ContainerID(c.ID))
			if st == nil || st.State.String() != c.State.String() || st.ExitCode != c.ExitCode || st.Reason != c.Reason || st.Name != c.Name {
				fmt.Fprintf(&out, "container %s of %s is %+v in the cache, want %+v\n", c.ID, want.UID, st, c)
			}
		}
		if got.SandboxReady() != want.Sandboxes[0].Ready || got.SandboxReady() && (len(got.IPs) == 0 || got.IPs[0] != want.Sandboxes[0].IPs[0]) {
			fmt.Fprintf(&out, "pod %s is ready: %t with %v, want %+v\n", want.UID, got.SandboxReady(), got.IPs, want.Sandboxes[0])
		}
	}
	for _, e := range b.pipe.Cache().List() {
		if _, ok := b.rt.Pod(string(e.UID)); !ok {
			fmt.Fprintf(&out, "pod %s is gone and in the cache: %+v\n", e.UID, e)
		}
	}
	return out.String()
}

// end stops everything and returns the events.
func (b *bed) end() []pipeline.Event {
	b.t.Helper()
	b.stop()
	if err := errors.Join(b.group.Wait(), b.client.Close()); err != nil {
		b.t.Errorf("end: %v", err)
	}
	var all []pipeline.Event
	for ev := range b.sub.Events() {
		all = append(all, ev)
	}
	return all
}

// tell logs what is needed to see a failure again.
func tell(t *testing.T, s *schedule.Schedule, mode mode) {
	if !t.Failed() {
		return
	}
	var text strings.Builder
	if err := s.Encode(&text); err != nil {
		t.Error(err)
	}
	t.Logf("mode %v, seed %d; to see it again, put the following into a file and\n"+
		"go test ./tests/faults -run TestReplay -faults.replay FILE, or\n"+
		"pleg-pipeline simulate --socket PATH --replay FILE\n%s", mode, s.Seed, text.String())
}
