package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

func draw(t *testing.T, seed uint64, specs ...string) *schedule.Schedule {
	t.Helper()
	o := schedule.Options{Seed: seed, Pods: 5, Rate: 10, Duration: 30 * time.Second}
	for _, text := range specs {
		spec, err := schedule.ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		o.Faults = append(o.Faults, spec)
	}
	s, err := schedule.Draw(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSeedDeterminesTheSchedule(t *testing.T) {
	specs := []string{"*/*/*", "*/error/random", "ContainerStatus/*/once", "*/panic/always"}
	first := encode(t, draw(t, 1, specs...))
	if again := encode(t, draw(t, 1, specs...)); first != again {
		t.Errorf("the same seed made\n%s\nand\n%s", first, again)
	}
	if other := encode(t, draw(t, 2, specs...)); first == other {
		t.Error("another seed made the same")
	}
	if without := draw(t, 1); !reflect.DeepEqual(without.Steps, decode(t, first).Steps) {
		t.Error("the steps depend on the faults")
	}
	if perStep := len(first) / 300; perStep > 120 {
		t.Errorf("%d bytes for each of 300 steps: too large to attach", perStep)
	}
}

// Every fault that can be asked for is valid as it is drawn.
func TestEveryFaultIsDrawn(t *testing.T) {
	seen := make(map[string]bool)
	for _, call := range schedule.Calls() {
		for _, kind := range schedule.Kinds(call) {
			for seed := range uint64(20) {
				s, err := schedule.Draw(t.Context(), schedule.Options{Seed: seed, Pods: -1, Rate: -1, Faults: []schedule.Spec{{Call: call, Kind: kind, When: schedule.Any}}})
				if err != nil {
					t.Fatal(err)
				}
				seen[s.Faults[0].String()] = true
			}
			for _, when := range []schedule.When{schedule.Once, schedule.Always, schedule.Random} {
				if name := fmt.Sprintf("%s/%s/%s", call, kind, when); !seen[name] {
					t.Errorf("%s was not drawn", name)
				}
			}
		}
	}
}

func TestBadSpecs(t *testing.T) {
	for text, want := range map[string]string{
		"ContainerStatus":               "want CALL/KIND/WHEN",
		"ContainerStatus/hang":          "want CALL/KIND/WHEN",
		"Attach/hang/once":              `call "Attach": want one of *, ContainerStatus, GetContainerEvents`,
		"ContainerStatus/truncate/once": `kind "truncate": ContainerStatus knows *, [error hang slow malform]`,
		"*/burn/once":                   `kind "burn"`,
		"ListPods/hang/once":            `kind "hang"`,
		"ContainerStatus/hang/twice":    `"twice": want once, always, random or *`,
	} {
		if _, err := schedule.ParseSpec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]schedule.Options{
		"Containers": {Containers: -1},
		"Duration":   {Duration: -1},
		"profile":    {Latency: "fast"},
	} {
		if _, err := schedule.Draw(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// serve serves the runtime of a schedule in the bubble of t.
func serve(t *testing.T, s *schedule.Schedule) (*simruntime.Runtime, cri.RuntimeServiceClient) {
	t.Helper()
	rt, err := s.Runtime(simruntime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, listener) }()
	conn, err := grpc.NewClient("passthrough:///sim", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		conn.Close()
	})
	return rt, cri.NewRuntimeServiceClient(conn)
}

// journal plays a schedule beside a client that asks for everything each 100 ms,
// and notes what both see.
func journal(t *testing.T, s *schedule.Schedule) []string {
	var notes, steps []string // of the client, and of the player
	synctest.Test(t, func(t *testing.T) {
		rt, client := serve(t, s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			played, err := s.Play(t.Context(), rt, schedule.PlayOptions{WaitForCall: true, Observe: func(step schedule.Step) {
				steps = append(steps, fmt.Sprintf("%+v %+v OK", step, rt.Generation()))
			}})
			if err != nil || played.PassedOver > 0 || played.Steps != len(s.Steps) {
				t.Errorf("played %+v, %v", played, err)
			}
		}()
		time.Sleep(50 * time.Millisecond)
		_, _ = client.Version(t.Context(), &cri.VersionRequest{})
		time.Sleep(3 * time.Microsecond)
		for n := range 300 {
			list, err := client.ListContainers(t.Context(), &cri.ListContainersRequest{})
			notes = append(notes, fmt.Sprint(n, len(list.GetContainers()), status.Code(err)))
			for _, c := range list.GetContainers() {
				st, err := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: c.GetId()})
				notes = append(notes, fmt.Sprint(c.GetId(), st.GetStatus().GetState(), st.GetStatus().GetExitCode(), status.Code(err)))
			}
			// Never at the moment of a step: who is first then is left to chance.
			time.Sleep(100*time.Millisecond + 7*time.Microsecond)
		}
		<-done
	})
	return append(notes, steps...)
}

// A schedule that was written and read does the same, call by call.
func TestReplayIsTheSame(t *testing.T) {
	specs := []string{"ContainerStatus/error/random", "ContainerStatus/malform/random", "ListContainers/error/once", "ListContainers/slow/always"}
	s := draw(t, 4, specs...)
	first := journal(t, s)
	again := journal(t, decode(t, encode(t, s)))
	if !slices.Equal(first, again) {
		t.Errorf("the second time was another: %d and %d notes", len(first), len(again))
	}
	if other := journal(t, draw(t, 5, specs...)); slices.Equal(first, other) {
		t.Error("another seed did the same")
	}
	if !slices.ContainsFunc(first, func(note string) bool { return !strings.HasSuffix(note, "OK") }) {
		t.Error("no call failed: this tests nothing")
	}
}

// A file from which somebody has cut steps is played as far as it makes sense,
// and the pods that are left are the same ones.
func TestScheduleCanBeCutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := draw(t, 3)
		whole, _ := serve(t, s)
		if played, err := s.Play(t.Context(), whole, schedule.PlayOptions{}); err != nil || played.PassedOver != 0 {
			t.Fatalf("played %+v, %v", played, err)
		}
		cut := *s
		cut.Pods = slices.Clone(s.Pods[1:])
		cut.Steps = slices.Clone(s.Steps[20:])
		rt, _ := serve(t, &cut)
		played, err := cut.Play(t.Context(), rt, schedule.PlayOptions{})
		if err != nil || played.PassedOver == 0 || played.Steps != len(cut.Steps) {
			t.Errorf("played %+v, %v", played, err)
		}
		common := 0
		for _, p := range rt.Pods() {
			if _, ok := whole.Pod(p.UID); ok {
				common++
			}
		}
		if common == 0 {
			t.Error("no pod is the same")
		}
	})
}

// At its end, or if it is given up, a schedule leaves no fault behind.
func TestFaultsAreLifted(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := draw(t, 1)
			s.Faults = []schedule.Fault{
				{Call: "ContainerStatus", Kind: schedule.Error, Code: "Internal"},
				{Call: "PodSandboxStatus", Kind: schedule.Hang},
			}
			rt, client := serve(t, s)
			pod := rt.Pods()[0]
			hung := make(chan error)
			go func() {
				_, err := client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod.Sandboxes[0].ID})
				hung <- err
			}()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if _, err := s.Play(ctx, rt, schedule.PlayOptions{}); (err != nil) != (after == time.Second) {
				t.Errorf("play: %v", err)
			}
			if err := <-hung; err != nil && status.Code(err).String() != "NotFound" {
				t.Errorf("the call that hung: %v", err)
			}
			_, err := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: rt.Pods()[0].Containers[0].ID})
			if err != nil {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// A fault of the events breaks the stream when it begins and when it is lifted,
// and malformed events are malformed.
func TestFaultsOfEventsHitOpenStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := draw(t, 1)
		s.Faults = []schedule.Fault{{
			Call: "GetContainerEvents", Kind: schedule.Malform, Malform: "nil-status",
			From: schedule.Time(10 * time.Second), Until: schedule.Time(20 * time.Second),
		}}
		rt, client := serve(t, s)
		type seen struct{ events, bad int }
		var streams []seen
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
				if err != nil {
					continue
				}
				var n seen
				for {
					ev, err := stream.Recv()
					if err != nil {
						break
					}
					if n.events++; ev.GetPodSandboxStatus() == nil {
						n.bad++
					}
				}
				streams = append(streams, n)
			}
		}()
		synctest.Wait()
		if _, err := s.Play(t.Context(), rt, schedule.PlayOptions{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		cancel()
		<-done
		if len(streams) != 3 || streams[0].bad+streams[2].bad > 0 || streams[1].bad == 0 || streams[1].bad != streams[1].events {
			t.Errorf("streams with events and bad ones %v, want three, and those of the second bad", streams)
		}
	})
}
