//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// relistPeriod of the library in these tests; the default would only make them
// slower.
const relistPeriod = 200 * time.Millisecond

// runLibrary runs a pipeline on the lab until the test ends and records what
// its subscriber gets. If checkCache is true, the cache is compared with each
// event as it arrives; then every step must be awaited before the next one.
func runLibrary(ctx context.Context, t *testing.T, l *lab.Lab, o pipeline.Options, checkCache bool) (*pipeline.Pipeline, *record) {
	t.Helper()
	return runClient(ctx, t, l, cri.Options{}, o, checkCache)
}

// runClient is runLibrary with a client that has these options.
func runClient(ctx context.Context, t *testing.T, l *lab.Lab, calls cri.Options, o pipeline.Options, checkCache bool) (*pipeline.Pipeline, *record) {
	t.Helper()
	client, err := cri.New(l.Endpoint(), calls)
	must(t, err)
	o.Runtime = client
	if o.RelistPeriod == 0 {
		o.RelistPeriod = relistPeriod
	}
	p, err := pipeline.New(o)
	must(t, err)
	sub, err := p.Subscribe(pipeline.SubscribeOptions{Name: "e2e"})
	must(t, err)

	ctx, cancel := context.WithCancel(ctx)
	ran, read := make(chan error, 1), make(chan struct{})
	go func() { ran <- p.Run(ctx) }()
	r := newRecord("library")
	go func() {
		defer close(read)
		for ev := range sub.Events() {
			if checkCache {
				checkCacheAt(r, p.Cache(), ev)
			}
			r.add(ev)
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; !errors.Is(err, context.Canceled) {
			t.Errorf("run pipeline: got %v, want context.Canceled", err)
		}
		<-read
		must(t, client.Close())
		r.check(t, l)
	})
	return p, r
}

// checkCacheAt notes a problem if the cache does not show what the event says.
func checkCacheAt(r *record, cache *pipeline.Cache, ev pleg.Event) {
	status, err := cache.Get(ev.PodUID)
	if err != nil {
		r.problem("%s: the cache has error %v", describe(ev), err)
		return
	}
	present, running := find(status, ev)
	gone := len(status.Containers)+len(status.Sandboxes) == 0 && status.ObservedAt.IsZero()
	if !gone && status.ObservedAt.Before(ev.ObservedAt) {
		r.problem("%s: the status in the cache is %v older", describe(ev), ev.ObservedAt.Sub(status.ObservedAt))
	}
	switch ev.Type {
	case pleg.ContainerStarted:
		if !present || !running {
			r.problem("%s: in the cache present is %v, running is %v", describe(ev), present, running)
		}
	case pleg.ContainerDied:
		if !present || running {
			r.problem("%s: in the cache present is %v, running is %v", describe(ev), present, running)
		}
	case pleg.ContainerRemoved:
		if present {
			r.problem("%s: it is in the cache", describe(ev))
		}
	}
}

func find(status *pleg.PodStatus, ev pleg.Event) (present, running bool) {
	if !ev.Sandbox {
		c := status.Container(ev.ContainerID)
		return c != nil, c != nil && c.State == pleg.StateRunning
	}
	for _, s := range status.Sandboxes {
		if s.ID == ev.ContainerID {
			return true, s.Ready
		}
	}
	return false, false
}

// What happened while nobody could ask is found afterwards, and nothing else.
func TestRestartOfContainerd(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	p, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 5))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
		return err
	}))

	victim := s.pods[0].Containers()[0]
	before := time.Now()
	l.Crash()
	must(t, l.KillProcess(ctx, victim))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, victim))
	must(t, s.awaitAll(ctx))
	status, err := p.Cache().GetNewerThan(ctx, pleg.PodUID(s.pods[1].UID), before)
	must(t, err)
	if len(status.Containers) != 1 || status.Containers[0].State != pleg.StateRunning {
		t.Errorf("a pod that survived the restart: got %+v", status.Containers)
	}
	if ok, err := p.Healthy(); !ok {
		t.Errorf("not healthy: %v", err)
	}
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) }))
}

// A hung runtime makes the pipeline unhealthy, costs no event, and is forgiven.
func TestFrozenContainerd(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	p, seen := runLibrary(ctx, t, l, pipeline.Options{
		ListTimeout: 300 * time.Millisecond, InspectTimeout: time.Second, RelistThreshold: time.Second,
	}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 3))
	c, err := l.RunContainer(ctx, s.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	must(t, s.awaitAll(ctx))

	must(t, l.Freeze(ctx))
	must(t, l.KillProcess(ctx, c))
	must(t, awaitHealth(ctx, p, false))
	if _, err := p.Cache().Get(pleg.PodUID(c.Pod.UID)); err != nil {
		t.Errorf("the cache forgot a pod for which nobody answered: %v", err)
	}
	must(t, l.Thaw())
	must(t, awaitHealth(ctx, p, true))
	must(t, l.AwaitDied(ctx, c))
	must(t, s.awaitAll(ctx))
}

func awaitHealth(ctx context.Context, p *pipeline.Pipeline, want bool) error {
	return eventually(ctx, func() bool {
		ok, _ := p.Healthy()
		return ok == want
	})
}

func TestGetNewerThanSeesWhatWasJustDone(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	p, _ := runLibrary(ctx, t, l, pipeline.Options{}, false)
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "fresh"})
	must(t, err)
	uid := pleg.PodUID(pod.UID)
	c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	must(t, err)

	status, err := p.Cache().GetNewerThan(ctx, uid, time.Now())
	must(t, err)
	if got := status.Container(pleg.ContainerID(c.ID)); got == nil || got.State != pleg.StateRunning {
		t.Fatalf("after the start: got %+v, want running", got)
	}
	if len(status.IPs) != 1 {
		t.Errorf("IPs: got %v, want one of the lab's bridge", status.IPs)
	}
	must(t, l.Trigger(ctx, c))
	status, err = p.Cache().GetNewerThan(ctx, uid, time.Now())
	must(t, err)
	if got := status.Container(pleg.ContainerID(c.ID)); got == nil || got.State != pleg.StateExited || got.ExitCode != 7 {
		t.Fatalf("after the end: got %+v, want exit code 7", got)
	}
	must(t, l.RemovePod(ctx, pod))
	status, err = p.Cache().GetNewerThan(ctx, uid, time.Now())
	must(t, err)
	if len(status.Containers)+len(status.Sandboxes) != 0 {
		t.Errorf("after the removal: got %+v, want nothing", status)
	}
}

// A request brings one pod's change without waiting for the next list of all.
func TestRequestRelist(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	p, seen := runLibrary(ctx, t, l, pipeline.Options{RelistPeriod: time.Hour}, true)
	must(t, awaitHealth(ctx, p, true)) // the only list of all is over
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "asked"})
	must(t, err)
	step := func(err error) {
		t.Helper()
		must(t, err)
		p.RequestRelist(pleg.PodUID(pod.UID))
		must(t, await(ctx, l, pod.UID, seen))
	}
	step(nil)
	c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	step(err)
	step(l.Trigger(ctx, c))
	step(l.StopPod(ctx, pod))
	step(l.RemovePod(ctx, pod))
}

// Who comes late learns what there is, and then what happens.
func TestReplay(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	p, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 3))
	c, err := l.RunContainer(ctx, s.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
	must(t, err)
	must(t, s.awaitAll(ctx)) // a start and an end between two lists would be one event
	must(t, l.Trigger(ctx, c))
	must(t, s.awaitAll(ctx))

	late, err := p.Subscribe(pipeline.SubscribeOptions{Name: "late", Replay: true})
	must(t, err)
	var got []string
	for ev := range late.Events() {
		if ev.Type == pleg.Synced {
			break
		}
		if !ev.Replayed {
			t.Errorf("%s: not marked as replayed", describe(ev))
		}
		got = append(got, describe(ev))
	}
	var want []string
	for _, pod := range s.pods {
		entries := l.Ledger().Pod(pod.UID)
		want = append(want, describeEntry(entries[0])) // its sandbox
		if pod == c.Pod {
			want = append(want, describeEntry(entries[len(entries)-1]))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	must(t, l.StopPod(ctx, s.pods[2]))
	must(t, next(ctx, late, pleg.ContainerDied, s.pods[2].UID))
}

func TestRequestReinspectSendsPodSync(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	p, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 2))
	uid := pleg.PodUID(s.pods[1].UID)
	before := len(seen.events(uid))
	p.RequestReinspect(uid)
	must(t, eventually(ctx, func() bool { return len(seen.events(uid)) > before }))
	events := seen.events(uid)
	if len(events) != before+1 || events[before].Type != pleg.PodSync {
		t.Errorf("got %v, want one PodSync after %d events", events, before)
	}
}
