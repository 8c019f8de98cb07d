package doctor_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The runtime needs a fixed time for each call and serves two at once. A pod with a sandbox
// and a container takes 30 ms.
func TestMeasureCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{Faults: []simruntime.Fault{
			{RPC: "ListPodSandbox", Latency: 4 * time.Millisecond},
			{RPC: "ListContainers", Latency: 6 * time.Millisecond},
			{RPC: "PodSandboxStatus", Latency: 10 * time.Millisecond},
			{RPC: "ContainerStatus", Latency: 20 * time.Millisecond},
		}})
		rt.SetMaxConcurrent(2)
		pods := rt.Populate(simruntime.Population{Pods: 8, Containers: 1})
		rt.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: pods[0].UID, Code: codes.Internal})
		rt.Inject(simruntime.Fault{RPC: "PodSandboxStatus", PodUID: pods[1].UID, Code: codes.NotFound})                                  // removed since the list: no failure
		rt.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: pods[2].UID, After: 3 * 3, Times: 1, Latency: 20 * time.Millisecond}) // one slow call of one sweep of seven
		o := serve(t, rt)
		o.Pressure = fstest.MapFS{"io": {Data: []byte("some avg10=12.00 ")}, "cpu": {Data: []byte("some avg10=34.00 ")}}
		load, err := doctor.MeasureCalls(t.Context(), o, time.Second, 10*time.Second)
		kit.Must(t, err)
		if load.Pods != 8 || load.StatusCalls != 16 || len(load.Sweeps) != 3 {
			t.Fatalf("measured %+v", load)
		}
		serial, four := load.Sweeps[0], load.Sweeps[1]
		if serial.Count != 7 || serial.MedianSeconds != 8*0.030 || four.MedianSeconds > serial.MedianSeconds*0.6 {
			t.Errorf("sweeps are %+v", load.Sweeps)
		}
		var made []string
		for _, c := range load.Calls {
			made = append(made, fmt.Sprint(c.Method, " ", c.AtOnce, ": ", c.Count, ", ", c.Failed))
		}
		if got, want := strings.Join(made, "; "), "ListPodSandbox 1: 7, 0; ListContainers 1: 7, 0; PodSandboxStatus 1: 49, 0; PodSandboxStatus 4: 49, 0; PodSandboxStatus 16: 49, 0; "+
			"ContainerStatus 1: 56, 7; ContainerStatus 4: 56, 7; ContainerStatus 16: 56, 7"; got != want {
			t.Errorf("the calls are %s, want %s", got, want)
		}
		var text bytes.Buffer
		kit.Must(t, load.Print(&text))
		for _, want := range []string{
			fmt.Sprintf("CRI calls of simruntime 0.1.0: 8 pods, %d CPUs, measured for ", runtime.NumCPU()), " processes waited for disk 12 %, for CPU 34 % of 10 s.",
			"If all 8 pods changed at once, their 16 status calls would take:", "| 4 | 120ms | 0.50 |", "| ListPodSandbox | 1 |", "| 4ms | 4ms | 0 |", "| PodSandboxStatus | 1 |", "| 10ms | 10ms | 0 |", "| ContainerStatus | 1 | 56 | 20ms | 40ms | 7 |", "| 1 | 240ms | 1.00 |",
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the text lacks %q:\n%s", want, &text)
			}
		}
		if failed := load.Calls[5]; failed.Method != "ContainerStatus" || failed.Failed != failed.Count/8 {
			t.Errorf("calls are %+v", load.Calls)
		}
		if queued := load.Calls[4]; queued.Method != "PodSandboxStatus" || queued.AtOnce != 16 || queued.P50Seconds >= queued.P99Seconds {
			t.Errorf("16 calls at once, of which the runtime serves two: %+v", queued)
		}
	})
}

// Both forms of a measurement have all figures. The load of the node is left out unless both parts are known, and the
// table of the sweeps if there is none.
func TestPrintOfALoad(t *testing.T) {
	load := &doctor.Load{
		Runtime: "containerd\n2", CPUs: 3, Pods: 4, StatusCalls: 5, TookSeconds: 6.004, Node: doctor.Node{IOPressure: new(7.4), CPUPressure: new(8.6)},
		Calls:  []doctor.LoadCall{{"ListPodSandbox", 1, 9, 10, 0.011, 0.012}, {"ContainerStatus", 16, 13, 14, 0.015, 1.6}},
		Sweeps: []doctor.Sweep{{1, 17, 2}, {4, 18, 1.5}},
	}
	golden(t, loadReport{load})
	load.Node.IOPressure, load.Sweeps = nil, nil
	var text strings.Builder
	kit.Must(t, load.Print(&text))
	if got := text.String(); !strings.HasPrefix(got, "CRI calls of containerd?2: 4 pods, 3 CPUs, measured for 6s.\n\n| call |") || !strings.HasSuffix(got, "| 14 |\n") {
		t.Errorf("without a load and sweeps:\n%s", got)
	}
	load.Node.IOPressure, load.Node.CPUPressure = new(1.0), nil
	text.Reset()
	if kit.Must(t, load.Print(&text)); strings.Contains(text.String(), "processes waited") {
		t.Errorf("with a figure alone:\n%s", &text)
	}
}

type loadReport struct{ *doctor.Load }

func (l loadReport) Print(w io.Writer, _ doctor.TextOptions) error { return l.Load.Print(w) }

// TestMeasureCallsKeepsWhatItHas interrupts the second round, while 4 pods are inspected at once.
func TestMeasureCallsKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{Faults: []simruntime.Fault{{RPC: "ContainerStatus", Latency: 100 * time.Millisecond}}})
		rt.Populate(simruntime.Population{Pods: 8, Containers: 1})
		for after, want := range map[time.Duration]int{950 * time.Millisecond: 1, 1500 * time.Millisecond: 3, 2500 * time.Millisecond: 3} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			load, err := doctor.MeasureCalls(ctx, serve(t, rt), time.Second, time.Minute)
			cancel()
			kit.Must(t, err)
			var text bytes.Buffer
			kit.Must(t, load.Print(&text))
			for _, c := range load.Calls {
				if c.Failed > 0 { // the interrupt has cut it
					t.Errorf("after %v: %+v", after, c)
				}
			}
			if load.Pods != 8 || len(load.Sweeps) != want || !strings.Contains(text.String(), "If all 8 pods changed at once") || load.TookSeconds != after.Seconds() {
				t.Errorf("after %v: measured %+v, want %d sweeps", after, load, want)
			}
		}
	})
}

// The timeout is also that of the first call. A busy runtime rests for as long as a round takes, here 4 s: within 15 s there are two rounds.
func TestMeasureCallsRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{Faults: []simruntime.Fault{{RPC: "ListPodSandbox", Latency: 4 * time.Second}, {RPC: "Version", Latency: 6 * time.Second}}})
		rt.Populate(simruntime.Population{Pods: 1, Containers: 1})
		load, err := doctor.MeasureCalls(t.Context(), serve(t, rt), 7*time.Second, 15*time.Second)
		kit.Must(t, err)
		if lists := load.Calls[0]; lists.Method != "ListPodSandbox" || lists.Count != 2 || load.TookSeconds < 12 {
			t.Errorf("%d lists in %v s, want 2 in 12 s", lists.Count, load.TookSeconds)
		}
	})
}

// A call that hangs has failed after its time.
func TestMeasureCallsCutsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{Faults: []simruntime.Fault{{RPC: "ContainerStatus", Hang: true}}})
		rt.Populate(simruntime.Population{Pods: 1, Containers: 1})
		load, err := doctor.MeasureCalls(t.Context(), serve(t, rt), 2*time.Second, time.Second)
		kit.Must(t, err)
		if hung := load.Calls[len(load.Calls)-1]; hung.Method != "ContainerStatus" || hung.Failed != 1 || hung.P99Seconds != 2 {
			t.Errorf("calls are %+v, want the last to fail after 2 s", load.Calls)
		}
	})
}

func TestMeasureCallsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := simruntime.New(simruntime.Options{})
		refuses.Inject(simruntime.Fault{RPC: "Version", Code: codes.Internal})
		if _, err := doctor.MeasureCalls(t.Context(), serve(t, refuses), time.Second, time.Second); err == nil || err.Error() != "check runtime at unix:///in-memory: it answers with an error: rpc error: code = Internal desc = injected fault" {
			t.Errorf("a runtime without a version: %v", err)
		}
		if _, err := doctor.MeasureCalls(t.Context(), options("tcp://host:1"), time.Second, time.Second); err == nil || !strings.Contains(err.Error(), "tcp://host:1") {
			t.Errorf("an address that is no socket: %v", err)
		}
		slow := simruntime.New(simruntime.Options{Faults: []simruntime.Fault{{RPC: "ListPodSandbox", Latency: time.Minute}}})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(io.ErrUnexpectedEOF) })
		if load, err := doctor.MeasureCalls(ctx, serve(t, slow), time.Hour, time.Hour); err != io.ErrUnexpectedEOF { //nolint:errorlint // the cause itself
			t.Errorf("interrupted in the first list: %+v, %v", load, err)
		}
		if _, err := doctor.MeasureCalls(t.Context(), serve(t, simruntime.New(simruntime.Options{})), time.Second, time.Second); err == nil || err.Error() != "the runtime has no pods: there is nothing to measure" {
			t.Errorf("without pods: %v", err)
		}
		rt := simruntime.New(simruntime.Options{})
		rt.Inject(simruntime.Fault{RPC: "ListContainers", Code: codes.Internal})
		if _, err := doctor.MeasureCalls(t.Context(), serve(t, rt), time.Second, time.Second); err == nil || !strings.Contains(err.Error(), "list containers") {
			t.Errorf("with a list that fails: %v", err)
		}
		rt.ClearAll()
		rt.Populate(simruntime.Population{Pods: 1, Containers: 1})
		time.AfterFunc(1500*time.Millisecond, func() { rt.Inject(simruntime.Fault{RPC: "ListContainers", Code: codes.Internal}) })
		if _, err := doctor.MeasureCalls(t.Context(), serve(t, rt), time.Second, time.Minute); err == nil || !strings.Contains(err.Error(), "list containers") {
			t.Errorf("with lists that fail later: %v", err)
		}
	})
}
