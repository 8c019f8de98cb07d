package serial_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var errInspect = errors.New("inspection went wrong")

// start is the time of the first list; each further one is a second later.
var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// fakeRuntime answers from its fields. It is used by one goroutine at a time.
type fakeRuntime struct {
	pods      []*pleg.Pod
	listErr   error
	fail      map[pleg.PodUID]error
	noAnswer  bool
	found     map[pleg.ContainerID]*pleg.ContainerStatus // instead of what was listed
	ips       map[pleg.PodUID][]string
	onInspect func(ctx context.Context, pod *pleg.Pod) error

	inspected []pleg.PodUID
	last      []*pleg.PodStatus
}

func (f *fakeRuntime) ListPods(context.Context) ([]*pleg.Pod, error) {
	return f.pods, f.listErr
}

func (f *fakeRuntime) PodStatus(
	ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus,
) (*pleg.PodStatus, error) {
	f.inspected = append(f.inspected, pod.UID)
	f.last = append(f.last, last)
	if f.onInspect != nil {
		if err := f.onInspect(ctx, pod); err != nil {
			return nil, err
		}
	}
	if err := f.fail[pod.UID]; err != nil {
		return nil, err
	}
	if f.noAnswer {
		return nil, nil
	}
	return f.status(pod), nil
}

func (f *fakeRuntime) status(pod *pleg.Pod) *pleg.PodStatus {
	status := &pleg.PodStatus{
		UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace, IPs: f.ips[pod.UID],
	}
	for _, c := range pod.Containers {
		found, ok := f.found[c.ID]
		if !ok {
			found = &pleg.ContainerStatus{ID: c.ID, Name: c.Name, State: c.State}
		}
		if found != nil {
			status.Containers = append(status.Containers, found)
		}
	}
	for _, s := range pod.Sandboxes {
		status.Sandboxes = append(status.Sandboxes, &pleg.SandboxStatus{
			ID: s.ID, Ready: s.State == pleg.StateRunning,
		})
	}
	return status
}

// pod builds a pod from words such as "c1=running" and, for a sandbox,
// "/s1=exited".
func pod(uid pleg.PodUID, words string) *pleg.Pod {
	states := map[string]pleg.State{
		"running": pleg.StateRunning, "exited": pleg.StateExited,
		"created": pleg.StateCreated, "unknown": pleg.StateUnknown,
	}
	p := &pleg.Pod{UID: uid, Name: "name-" + string(uid), Namespace: "ns"}
	for word := range strings.FieldsSeq(words) {
		id, state, _ := strings.Cut(word, "=")
		name, sandbox := strings.CutPrefix(id, "/")
		c := &pleg.Container{ID: pleg.ContainerID(name), Name: "n-" + name, State: states[state]}
		if sandbox {
			p.Sandboxes = append(p.Sandboxes, c)
		} else {
			p.Containers = append(p.Containers, c)
		}
	}
	return p
}

// bed is a PLEG on a fake runtime whose clock stands at the time of each list.
type bed struct {
	rt     *fakeRuntime
	pleg   *serial.PLEG
	events chan pleg.Event
	now    time.Time
}

func newBed(t *testing.T, buffer int, opts serial.Options) *bed {
	t.Helper()
	b := &bed{rt: &fakeRuntime{}, events: make(chan pleg.Event, buffer), now: start}
	opts.Events = b.events
	if opts.Clock == nil {
		opts.Clock = func() time.Time { return b.now }
	}
	p, err := serial.New(b.rt, opts)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	b.pleg = p
	return b
}

// drain returns the events that are waiting.
func (b *bed) drain() []pleg.Event {
	var got []pleg.Event
	for len(b.events) > 0 {
		got = append(got, <-b.events)
	}
	return got
}

// words renders events as "Died(c1) Removed(c1) Sync()".
func words(events []pleg.Event) string {
	out := make([]string, 0, len(events))
	for _, e := range events {
		t := strings.TrimPrefix(strings.TrimPrefix(string(e.Type), "Container"), "Pod")
		out = append(out, t+"("+string(e.ContainerID)+")")
	}
	return strings.Join(out, " ")
}
