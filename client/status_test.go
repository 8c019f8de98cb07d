package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

var errBroken = errors.New("inspect: broken \xff")

// A pod keeps its last status while its inspection fails, and is listed while its first inspection
// hangs.
func TestPods(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.runtime.Set("broken", "c=running")
		f.runtime.SetPodFault("broken", plegtest.Fail(errBroken))
		f.runtime.Set("failing", "c=running")
		f.runtime.Set("hung", "c=running")
		f.runtime.SetPodFault("hung", plegtest.Delay(time.Hour))
		// More than gRPC receives by default.
		f.runtime.SetDetails(func(s *pleg.PodStatus) {
			for _, sandbox := range s.Sandboxes {
				sandbox.Annotations = map[string]string{"config": strings.Repeat("x", 4<<20)}
			}
		})
		f.runtime.Set("well", "c=running /s=running")
		kit.Relist(2)
		f.runtime.SetPodFault("failing", plegtest.Fail(errBroken))
		f.runtime.Set("failing", "c=exited")
		kit.Relist(3)
		pods, position, err := f.client.Pods(t.Context())
		if err != nil || len(pods) != 4 {
			t.Fatalf("got %+v, %v, want four pods", pods, err)
		}
		if _, want, _ := f.pipe.Pods(t.Context()); position != want || want.Seq == 0 {
			t.Errorf("the position is %v, in the process %v", position, want)
		}
		now, err := f.client.Status(t.Context())
		if want, _ := f.pipe.Status(t.Context()); err != nil || now.Relist.Pods != 4 || len(now.Failed) == 0 || len(now.Failed) != len(want.Failed) || now.Healthy != want.Healthy {
			t.Errorf("the status is %+v, %v, in the process %+v", now, err, want)
		}
		broken, failing, hung, well := pods[0], pods[1], pods[2], pods[3] // sorted by UID
		for _, tt := range []struct {
			pod  cache.Entry
			says string
		}{{broken, "inspect: broken \uFFFD"}, {failing, "inspect: broken \uFFFD"}, {hung, "not ended yet"}} {
			var inspection *pleg.InspectionError
			if p := tt.pod; p.Status != nil || !errors.As(p.Err, &inspection) || !strings.HasSuffix(inspection.Error(), tt.says) {
				t.Errorf("pod %+v, want no status and the error %q", p, tt.says)
			}
		}
		if failing.Last.Container("c").State != pleg.StateRunning || time.Since(failing.LastAsOf) != 3500*time.Millisecond {
			t.Errorf("pod %+v, want the last status, of 3.5s ago: since the list before the change", failing)
		}
		if hung.Listed == nil || hung.Listed.Containers[0].ID != "c" || !hung.CurrentAsOf.IsZero() || !errors.Is(hung.Err, cache.ErrNotInspected) {
			t.Errorf("pod %+v, want it as it is listed, and ErrNotInspected", hung)
		}
		if well.Err != nil || well.Status.Container("c") == nil || well.Last != well.Status || !slices.Equal(well.Status.IPs, []string{plegtest.Address}) {
			t.Errorf("pod %+v, want container c and an address", well)
		}
		if age := time.Since(well.CurrentAsOf); age != 500*time.Millisecond {
			t.Errorf("pod well is current as of %v ago, want half a second: since the last list", age)
		}
		if some, _, err := f.client.Pods(t.Context(), "well", "unknown", "well", "hung"); err != nil || len(some) != 2 || some[0].UID != "hung" || some[1].UID != "well" {
			t.Errorf("got %+v, %v, want the pods hung and well, once", some, err)
		}
	})
}

// A pipeline that is synced later ends the wait. Once its lists fail for long, it is not healthy.
func TestSyncedAndHealthy(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.runtime.Set("a", "c=running")
		f.runtime.SetListFault(plegtest.Delay(3 * time.Second))
		f.endServer()
		_ = f.pipe.Stop()
		f.startPipeline()
		f.startServer()
		for _, want := range []time.Duration{3 * time.Second, 0} {
			began := time.Now()
			if err := f.client.WaitSynced(t.Context()); err != nil || time.Since(began).Truncate(time.Second) != want {
				t.Errorf("WaitSynced = %v after %v, want %v", err, time.Since(began), want)
			}
		}
		f.runtime.SetListFault(nil)
		kit.Relist(5)
		if ok, err := f.client.Healthy(); !ok || err != nil {
			t.Errorf("Healthy = %t, %v, want true", ok, err)
		}
		f.runtime.SetListFault(plegtest.Fail(errBroken))
		kit.Relist(200)
		want, err := f.pipe.Status(t.Context())
		kit.Must(t, err)
		if ok, err := f.client.Healthy(); ok || err == nil || err.Error() != strings.ToValidUTF8(want.Err.Error(), "\uFFFD") {
			t.Errorf("Healthy = %t, %v, want %v", ok, err, want.Err)
		}
	})
}

// Before the first list, and after the end of the pipeline, each call has the error that it has in its process.
func TestCallsWithoutAList(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.runtime.SetListFault(plegtest.Hang)
		f.endServer()
		_ = f.pipe.Stop()
		f.startPipeline()
		f.startServer()
		for _, when := range []string{"before the first list", "after the end"} {
			inProcess := errorsOf(t, f.pipe)
			for call, got := range errorsOf(t, f.client) {
				want := inProcess[call]
				if got == nil || want == nil || got.Error() != strings.Replace(want.Error(), lookup.ErrNotYet.Error()+": ", "", 1) ||
					errors.Is(got, pleg.ErrNotSynced) != errors.Is(want, pleg.ErrNotSynced) || errors.Is(got, lookup.ErrNotYet) != errors.Is(want, lookup.ErrNotYet) {
					t.Errorf("%s: %s ended with %v, in the process with %v", when, call, got, want)
				}
			}
			_ = f.pipe.Stop()
		}
	})
}

func errorsOf(t *testing.T, p node.Pipeline) map[string]error {
	t.Helper()
	_, _, ofPods := p.Pods(t.Context())
	_, ofStatus := p.PodStatus(t.Context(), "a", time.Time{})
	_, ofLookup := p.Lookup(t.Context(), lookup.Query{Container: "c"})
	return map[string]error{"Pods": ofPods, "PodStatus": ofStatus, "Lookup": ofLookup}
}

// Over the socket, Lookup returns the errors of package lookup too.
func TestLookup(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.runtime.Set("shop/web", "c1=running /s=running")
		kit.Relist(2)
		c, err := f.client.Lookup(t.Context(), lookup.Query{Container: "c1"})
		if err != nil || c.ID != "c1" || c.PodUID != "shop/web" || c.State != pleg.StateRunning || c.PodLabels["pod"] != "web" {
			t.Errorf("got %+v, %v", c, err)
		}
		f.runtime.SetListFault(plegtest.Delay(time.Hour))
		for name, tc := range map[string]struct {
			q    lookup.Query
			want error
		}{
			"not waiting":        {lookup.Query{Container: "unknown"}, lookup.ErrNotYet},
			"waiting":            {lookup.Query{Container: "unknown", Wait: time.Second}, lookup.ErrNotYet},
			"a host's process":   {lookup.Query{PID: 1}, lookup.ErrNoContainer},
			"two at once":        {lookup.Query{PID: 1, Container: "c1"}, pleg.ErrInvalidOption},
			"end of the context": {lookup.Query{Container: "unknown", Wait: time.Hour}, context.DeadlineExceeded},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := f.client.Lookup(ctx, tc.q)
			if !errors.Is(err, tc.want) || errors.Is(err, pleg.ErrUnknownPod) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			}
			if _, inProcess := f.pipe.Lookup(ctx, tc.q); tc.q.Wait < time.Hour && err.Error() != inProcess.Error() {
				t.Errorf("%s: %v, in the process %v", name, err, inProcess)
			}
			cancel()
		}
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := f.client.Lookup(cancelled, lookup.Query{Container: "unknown", Wait: time.Hour}); !errors.Is(err, context.Canceled) || err.Error() != "look up container unknown: context canceled" || status.Code(err) != codes.Canceled {
			t.Errorf("cancelled: %v, want %v", err, context.Canceled)
		}
		f.runtime.SetListFault(nil)
		_ = f.pipe.Stop()
		if _, err := f.client.Lookup(t.Context(), lookup.Query{Container: "unknown", Wait: time.Minute}); status.Code(err) != codes.Unavailable {
			t.Errorf("after the end of the pipeline: %v", err)
		}
	})
}

// A lookup before the first list may succeed later, as in the process of the pipeline.
func TestLookupBeforeTheFirstList(t *testing.T) {
	c := clientOf(t, &hostile.Daemon{OnLookup: func(context.Context) (*plegv1.LookupResponse, error) { return nil, wire.NotSynced() }})
	if _, err := c.Lookup(t.Context(), lookup.Query{Container: "c"}); !errors.Is(err, lookup.ErrNotYet) || !errors.Is(err, pleg.ErrNotSynced) || err.Error() != "look up container c: "+pleg.ErrNotSynced.Error() {
		t.Errorf("Lookup = %v, want %v and %v", err, lookup.ErrNotYet, pleg.ErrNotSynced)
	}
}

func TestPodStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.runtime.Set("a", "c1=running")
		f.runtime.Set("broken", "c1=running")
		f.runtime.SetPodFault("broken", plegtest.Fail(errBroken))
		kit.Relist(1)
		start := time.Now()
		got, err := f.client.PodStatus(t.Context(), "a", time.Time{})
		if err != nil || got.Container("c1") == nil || time.Since(start) != 0 {
			t.Errorf("got %+v, %v after %v, want a status at once", got, err, time.Since(start))
		}
		f.runtime.Set("a", "c1=exited")
		got, err = f.client.PodStatus(t.Context(), "a", start)
		if err != nil || got.Container("c1").State != pleg.StateExited || time.Since(start) != 500*time.Millisecond {
			t.Errorf("got %+v, %v after %v, want the next list's", got, err, time.Since(start))
		}
		f.runtime.Set("a", "c2=running")
		start = time.Now()
		if got, err = f.client.RelistPod(t.Context(), "a"); err != nil || got.Container("c2") == nil || time.Since(start) > 100*time.Millisecond {
			t.Errorf("got %+v, %v after %v, want the status of a list of its own", got, err, time.Since(start))
		}
		for name, p := range map[string]node.Pipeline{"in process": f.pipe, "over the socket": f.client} {
			if got, err := p.PodStatus(t.Context(), "absent", start); got != nil || !errors.Is(err, pleg.ErrUnknownPod) || err.Error() != "status of pod absent: "+pleg.ErrUnknownPod.Error() {
				t.Errorf("%s: got %+v, %v, want %v of the pod", name, got, err, pleg.ErrUnknownPod)
			}
			if got, err := p.PodStatus(t.Context(), "broken", time.Time{}); got != nil || !errors.As(err, new(*pleg.InspectionError)) || strings.ToValidUTF8(err.Error(), "\uFFFD") != "status of pod broken: inspect pod ns/name-broken (broken): inspect: broken \uFFFD" {
				t.Errorf("%s: got %+v, %v, want the error of the inspection and the pod", name, got, err)
			}
		}
		if _, err = f.client.PodStatus(t.Context(), "", time.Time{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("no UID: got %v, want %v", err, codes.InvalidArgument)
		}
	})
}

// A server with too many calls refuses the next call. The client asks again.
func TestPodStatusIsAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.runtime.Set("a", "c1=running")
		kit.Relist(1)
		future := time.Now().Add(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range server.DefaultMaxCalls / server.DefaultMaxStreams { // these calls take all slots
			c := f.newClient(nil)
			for range server.DefaultMaxStreams {
				waiting.Go(func() { _, _ = c.PodStatus(ctx, "a", future) })
			}
		}
		synctest.Wait()
		began := time.Now()
		time.AfterFunc(5*time.Minute, cancel)
		got, err := f.client.PodStatus(t.Context(), "a", time.Time{})
		if took := time.Since(began); err != nil || got.Container("c1") == nil || took < 5*time.Minute || took > 6*time.Minute {
			t.Errorf("got %+v, %v after %v, want the status once there is a slot", got, err, took)
		}
		waiting.Wait()
	})
}
