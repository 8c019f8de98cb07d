package simruntime_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// lifeOfAPod are the events of a pod: s is the sandbox, c the container.
var lifeOfAPod = []string{
	"s CREATED", "s STARTED", "c CREATED", "c STARTED",
	"c CREATED", "c STARTED", "c STOPPED", "c DELETED", // another one, which is removed while it runs
	"c STOPPED", "s STOPPED", "c DELETED", "s DELETED",
}

func TestEachClientGetsAllEventsOfPod(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		var seen [2][]string
		leaving, leave := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{leaving, t.Context()} {
			stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
			kit.Must(t, err)
			go func() {
				last := int64(0)
				for ev, err := stream.Recv(); err == nil; ev, err = stream.Recv() {
					if ev.ContainerId == "" {
						t.Errorf("an event has no id: %v", ev)
					}
					if ev.CreatedAt <= last {
						t.Errorf("an event at %d follows one at %d: clients sort by time", ev.CreatedAt, last)
					}
					last = ev.CreatedAt
					what, kind := "c ", strings.Split(ev.ContainerEventType.String(), "_")[1]
					if ev.ContainerId == ev.GetPodSandboxStatus().GetId() {
						what = "s "
					}
					if sandbox := ev.GetPodSandboxStatus(); (sandbox.GetCreatedAt() < 0) != (what+kind == "s DELETED") {
						t.Errorf("%s%s has the sandbox %v, want the time of its creation in all events but the last", what, kind, sandbox)
					}
					state := "gone" // of the container, as of the event
					for _, c := range ev.ContainersStatuses {
						if c.Id == ev.ContainerId {
							state = strings.TrimPrefix(c.State.String(), "CONTAINER_")
						}
					}
					if want := map[string]string{"CREATED": "CREATED", "STARTED": "RUNNING", "STOPPED": "EXITED", "DELETED": "gone"}[kind]; what == "c " && state != want {
						t.Errorf("the container is %s in its event %s, want %s", state, kind, want)
					}
					seen[i] = append(seen[i], what+kind)
				}
			}()
		}
		synctest.Wait()
		p := rt.AddPod(simruntime.PodSpec{Containers: []pleg.ContainerStatus{{}}})
		var removed pleg.ContainerID
		rt.Update(func(s *simruntime.State) {
			c, err := s.AddContainer(p.UID, pleg.ContainerStatus{Name: "debug"})
			kit.Must(t, err)
			removed = c.ID
			kit.Must(t, s.RemoveContainer(removed))
		})
		kit.Must(t, rt.StopPod(p.UID))
		kit.Must(t, rt.RemovePod(p.UID))
		_, ofContainer := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: string(removed)})
		_, ofSandbox := client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: string(p.Sandboxes[0].ID)})
		if status.Code(ofContainer) != codes.NotFound || status.Code(ofSandbox) != codes.NotFound {
			t.Errorf("of a removed container and sandbox: %v, %v, want NotFound", ofContainer, ofSandbox)
		}
		synctest.Wait()
		for _, got := range seen {
			if !slices.Equal(got, lifeOfAPod) {
				t.Errorf("got %q, want %q", got, lifeOfAPod)
			}
		}
		if s := rt.Stats(); s.DroppedEvents != 0 || s.InFlight != 0 || s.PeakInFlight != 1 {
			t.Errorf("stats %+v", s)
		}
		leave()
		synctest.Wait()
		if s := rt.Stats().RPCs["GetContainerEvents"]; s.Calls != 2 || s.Time != 0 {
			t.Errorf("counted %+v, want 2 calls and no time", s)
		}
		if first, second := rt.BreakEvents(), rt.BreakEvents(); first != 1 || second != 0 {
			t.Errorf("%d clients after one left, and then %d", first, second)
		}
		leaving, leave = context.WithCancel(t.Context())
		_, err := client.GetContainerEvents(leaving, &cri.GetEventsRequest{})
		kit.Must(t, err)
		synctest.Wait()
		leave()
		synctest.Wait()
		rt.AddPod(simruntime.PodSpec{})
		if s := rt.Stats(); s.DroppedEvents != 2 {
			t.Errorf("%d events are dropped after the last client left, want 2", s.DroppedEvents)
		}
	})
}

// A fault refuses a stream, or ends it after some events.
func TestFaultsOfStreams(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		for want := range 3 {
			rt.ClearAll()
			rt.Inject(simruntime.Fault{RPC: "GetContainerEvents", Code: codes.Internal, Messages: want})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
			kit.Must(t, err)
			synctest.Wait()
			rt.AddPod(simruntime.PodSpec{Containers: []pleg.ContainerStatus{{}}})
			got := 0
			for _, err = stream.Recv(); err == nil; _, err = stream.Recv() {
				got++
			}
			if status.Code(err) != codes.Internal || got != want {
				t.Errorf("a stream that ends after %d events ended with %v after %d", want, err, got)
			}
		}
		rt.Inject(simruntime.Fault{RPC: "GetContainerEvents", Latency: time.Second, Code: codes.Unavailable, Messages: 1}) // before the other one
		stream, err := client.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
		kit.Must(t, err)
		synctest.Wait()
		rt.AddPod(simruntime.PodSpec{})
		began := time.Now()
		_, err = stream.Recv()
		kit.Must(t, err)
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || time.Since(began) < time.Second {
			t.Errorf("a stream with faults after one and two events ended with %v after one, and after %v", err, time.Since(began))
		}
	})
}

// The latencies of a stream add up, and of its losses the greatest counts.
func TestSeveralFaultsOfAStream(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		for _, lost := range []bool{false, true} {
			rt.ClearAll()
			late := simruntime.Fault{RPC: "GetContainerEvents", Latency: time.Second}
			rt.Inject(late)
			if lost {
				rt.Inject(simruntime.Fault{RPC: "GetContainerEvents", Loss: 1})
			}
			rt.Inject(late)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
			kit.Must(t, err)
			synctest.Wait()
			rt.AddPod(simruntime.PodSpec{})
			began := time.Now()
			ev, err := stream.Recv()
			if lost != (err != nil) || !lost && (time.Since(began).Round(ms) != 2*time.Second || ev.ContainerEventType != cri.ContainerEventType_CONTAINER_CREATED_EVENT) {
				t.Errorf("lost: %t: got %v, %v after %v", lost, ev, err, time.Since(began))
			}
			if lost {
				continue
			}
			if ev, err := stream.Recv(); err != nil || time.Since(began).Round(ms) != 2*time.Second {
				t.Errorf("the next event of that moment is %v, %v after %v, want as late as the first", ev, err, time.Since(began))
			}
		}
	})
}

// Some events are lost, each with the probability of the fault. The seed chooses which.
func TestLostEvents(t *testing.T) {
	one, again, other := eventsThatCome(t, 1), eventsThatCome(t, 1), eventsThatCome(t, 2)
	if one != again || one == other {
		t.Errorf("of one seed came %s and %s, of another %s", one, again, other)
	}
}

func eventsThatCome(t *testing.T, seed uint64) (types string) {
	t.Helper()
	simulate(t, simruntime.Options{Seed: seed}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		rt.Inject(simruntime.Fault{RPC: "GetContainerEvents", Loss: 0.25})
		stream, err := client.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
		kit.Must(t, err)
		synctest.Wait()
		rt.Populate(simruntime.Population{Pods: 40})
		synctest.Wait()
		rt.BreakEvents()
		for ev, err := stream.Recv(); err == nil; ev, err = stream.Recv() {
			types += strconv.Itoa(int(ev.ContainerEventType))
		}
		if got := len(types); got < 45 || got > 75 {
			t.Errorf("%d of 80 events came, want about 60", got)
		}
	})
	return types
}

// stream is the server's side of an event stream.
type stream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // a stream has one
	send func()
}

func (s stream) Context() context.Context { return s.ctx }

func (s stream) Send(*cri.ContainerEventResponse) error { s.send(); return nil }

// A client that does not read has a thousand events, and no more.
func TestUnreadEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, ended := simruntime.New(simruntime.Options{}), make(chan error)
		go func() {
			ended <- rt.Service().GetContainerEvents(&cri.GetEventsRequest{}, stream{ctx: t.Context(), send: func() { time.Sleep(time.Hour) }})
		}()
		synctest.Wait()
		rt.AddPod(simruntime.PodSpec{})
		synctest.Wait() // the first event of two is on its way
		read := 0
		go func() {
			_ = rt.Service().GetContainerEvents(&cri.GetEventsRequest{}, stream{ctx: t.Context(), send: func() { read++ }})
		}()
		synctest.Wait()
		rt.Populate(simruntime.Population{Pods: 250})
		synctest.Wait()
		rt.Populate(simruntime.Population{Pods: 251})
		if synctest.Wait(); read != 1002 {
			t.Errorf("a client that reads got %d events beside one that does not, want 1002", read)
		}
		if n := rt.Stats().DroppedEvents; n != 3 {
			t.Errorf("%d events of 1004 are dropped, want 3", n)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := rt.Service().GetContainerEvents(&cri.GetEventsRequest{}, stream{ctx: cancelled}); status.Code(err) != codes.Canceled {
			t.Errorf("a stream whose context has ended ended with %v", err)
		}
		rt.BreakEvents()
		if err := <-ended; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "event stream broken" {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// A stream that breaks loses the events on their way.
func TestBrokenStreamLosesItsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // a stream with an event and an end could send either
			rt, sent, ended := simruntime.New(simruntime.Options{}), 0, make(chan error)
			broken := stream{ctx: t.Context(), send: func() {
				sent++
				time.Sleep(time.Second) // until all events wait
				rt.BreakEvents()
			}}
			go func() { ended <- rt.Service().GetContainerEvents(&cri.GetEventsRequest{}, broken) }()
			synctest.Wait()
			rt.Populate(simruntime.Population{Pods: 3})
			if err := <-ended; status.Code(err) != codes.Unavailable || sent != 1 {
				t.Errorf("the stream ended with %v after %d events, want 1", err, sent)
			}
		}
	})
}
