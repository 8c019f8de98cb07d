package simruntime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const ms = time.Millisecond

// statusOf asks for a container's status and returns the code and the time.
func statusOf(ctx context.Context, client cri.RuntimeServiceClient, id pleg.ContainerID) (codes.Code, time.Duration) {
	began := time.Now()
	_, err := client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(id)})
	return status.Code(err), time.Since(began)
}

func TestFaultHitsSomeCalls(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		p := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0]
		rt.Inject(simruntime.Fault{PodUID: p.UID, Code: codes.Internal, After: 1, Times: 1})
		rt.Inject(simruntime.Fault{PodUID: p.UID, Code: codes.Internal, Message: "shim is hung", After: 2, Times: 1})
		for n, says := range []string{"", "injected fault", "shim is hung", ""} {
			_, err := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: string(p.Containers[0].ID)})
			if status.Convert(err).Message() != says || (err != nil) != (says != "") {
				t.Errorf("call %d ended with %v, want %q", n, err, says)
			}
		}
		rt.Inject(simruntime.Fault{PodUID: p.UID, Code: codes.Internal, After: 1, Times: 2})
		for n, want := range []codes.Code{codes.OK, codes.Internal, codes.Internal, codes.OK} {
			if got, _ := statusOf(t.Context(), client, p.Containers[0].ID); got != want {
				t.Errorf("call %d ended with %v, want %v", n, got, want)
			}
		}
	})
}

// The calls of a busy node take some time, each its own.
func TestBusyNode(t *testing.T) {
	simulate(t, simruntime.Options{Faults: simruntime.BusyNode()}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		pod := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0]
		took := func(do func()) time.Duration {
			began := time.Now()
			do()
			return time.Since(began)
		}
		_, container := statusOf(t.Context(), client, pod.Containers[0].ID)
		got := []time.Duration{
			container, took(func() { sandboxStatus(t, client, pod.Sandboxes[0].ID) }),
			took(func() { listContainers(t, client) }), took(func() { listPods(t, client) }),
		}
		if want := []time.Duration{12 * ms, 5 * ms, 30 * ms, 18 * ms}; !slices.Equal(got, want) {
			t.Errorf("the calls took %v, want %v", got, want)
		}
	})
}

// Whatever does not exist is not too large, however often it is asked for: a client that is refused an
// object may conclude that it exists.
func TestWhatDoesNotExistIsNotTooLarge(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		pod := rt.Populate(simruntime.Population{Pods: 2, Containers: 1})[0]
		sandbox, container := string(pod.Sandboxes[0].ID), string(pod.Containers[0].ID)
		calls := func(want string) {
			t.Helper()
			_, sandboxes := client.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: sandbox}})
			_, ofSandbox := client.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: sandbox}})
			_, containers := client.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: container}})
			_, all := client.ListContainers(t.Context(), &cri.ListContainersRequest{})
			code, _ := statusOf(t.Context(), client, pod.Containers[0].ID)
			if got := fmt.Sprint(status.Code(sandboxes), status.Code(ofSandbox), status.Code(containers), status.Code(all), code); got != want {
				t.Errorf("the calls ended with %s, want %s", got, want)
			}
		}
		rt.Inject(simruntime.Fault{Code: codes.ResourceExhausted})
		calls("ResourceExhausted ResourceExhausted ResourceExhausted ResourceExhausted ResourceExhausted")
		if err := rt.RemovePod(pod.UID); err != nil {
			t.Fatal(err)
		}
		calls("OK OK OK ResourceExhausted NotFound")
		rt.Inject(simruntime.Fault{Code: codes.Internal})
		calls("Internal Internal Internal ResourceExhausted Internal")
	})
}

// Faults of a call happen in the order of Inject, until one answers with an error.
func TestFaultsInOrder(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		id := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0].Containers[0].ID
		rt.Inject(simruntime.Fault{Latency: ms})
		end := rt.Inject(simruntime.Fault{Latency: ms, Code: codes.Internal})
		endOther := rt.Inject(simruntime.Fault{Latency: ms, Code: codes.Internal})
		rt.Inject(simruntime.Fault{Latency: ms, Code: codes.NotFound})
		for n, want := range []codes.Code{codes.Internal, codes.Internal, codes.NotFound} {
			if code, took := statusOf(t.Context(), client, id); code != want || took != 2*ms {
				t.Errorf("the call ended with %v after %v, want %v after 2ms", code, took, want)
			}
			if end(); n == 1 { // of one fault alone
				endOther()
			}
		}
		if s := rt.Stats().RPCs["ContainerStatus"]; s.Calls != 3 || s.Spoiled != 3 {
			t.Errorf("counted %+v, want 3 calls and 3 that faults affected", s)
		}
	})
}

// A fault of a pod or of an object hits each call that is about it, and no other.
func TestFaultOfAPod(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		pods := rt.Populate(simruntime.Population{Pods: 2, Containers: 1})
		for of, fault := range map[string]simruntime.Fault{
			"pod": {PodUID: pods[0].UID}, "sandbox": {ID: pods[0].Sandboxes[0].ID}, "container": {ID: pods[0].Containers[0].ID},
		} {
			fault.Code = codes.Internal
			end := rt.Inject(fault)
			for n, pod := range pods {
				sandbox, container := string(pod.Sandboxes[0].ID), string(pod.Containers[0].ID)
				label := map[string]string{"io.kubernetes.pod.uid": string(pod.UID)}
				ofSandboxes := func(f *cri.PodSandboxFilter) error {
					_, err := client.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{Filter: f})
					return err
				}
				ofContainers := func(f *cri.ContainerFilter) error {
					_, err := client.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: f})
					return err
				}
				_, ofSandbox := client.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
				_, ofContainer := client.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: container})
				for call, tc := range map[string]struct {
					err   error
					about string
				}{
					"PodSandboxStatus":          {ofSandbox, "sandbox"},
					"ContainerStatus":           {ofContainer, "container"},
					"list of one sandbox":       {ofSandboxes(&cri.PodSandboxFilter{Id: sandbox}), "sandbox"},
					"list of one container":     {ofContainers(&cri.ContainerFilter{Id: container}), "container"},
					"list of one of its own":    {ofContainers(&cri.ContainerFilter{Id: container, PodSandboxId: sandbox}), "container"},
					"list of its containers":    {ofContainers(&cri.ContainerFilter{PodSandboxId: sandbox}), "sandbox"},
					"sandboxes with its label":  {ofSandboxes(&cri.PodSandboxFilter{LabelSelector: label}), ""},
					"containers with its label": {ofContainers(&cri.ContainerFilter{LabelSelector: label}), ""},
					"list of all, with no pod":  {ofSandboxes(nil), "none"},
					"containers, with no pod":   {ofContainers(nil), "none"},
				} {
					hit := n == 0 && tc.about != "none" && (of == "pod" || of == tc.about)
					if (status.Code(tc.err) == codes.Internal) != hit {
						t.Errorf("a fault of the %s of pod 0: %s of pod %d ended with %v, want the fault: %t", of, call, n, tc.err, hit)
					}
				}
			}
			end()
		}
	})
}

// A fault of some calls counts each call that it matches, whether it hits the call or not.
func TestFaultOfSomeCallsWithProbability(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		p := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0]
		rt.Inject(simruntime.Fault{Code: codes.Internal, Times: 20, Probability: 0.5})
		failed := 0
		for n := range 60 {
			if code, _ := statusOf(t.Context(), client, p.Containers[0].ID); code != codes.OK {
				if failed++; n >= 20 {
					t.Errorf("call %d ended with %v", n, code)
				}
			}
		}
		if failed == 0 || failed == 20 {
			t.Errorf("%d of 20 calls failed, want some", failed)
		}
	})
}

// A call hangs until its fault is removed, also if the fault hits no other call any more.
func TestFaultEndsItsHungCalls(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		id := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0].Containers[0].ID
		for name, end := range map[string]func(end func()){"end": func(end func()) { end() }, "ClearAll": func(func()) { rt.ClearAll() }} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			remove := rt.Inject(simruntime.Fault{Latency: time.Second, Hang: true, Times: 1})
			hung := make(chan string)
			go func() {
				code, took := statusOf(ctx, client, id)
				hung <- fmt.Sprint(code, " after ", took)
			}()
			synctest.Wait()
			if code, took := statusOf(ctx, client, id); code != codes.OK || took != 0 {
				t.Errorf("the next call ended with %v after %v", code, took)
			}
			time.Sleep(5 * time.Second)
			end(remove)
			if got := <-hung; got != "OK after 5s" { // its latency has passed
				t.Errorf("%s: the call that hung ended with %s, want OK after 5s", name, got)
			}
		}
	})
}

// A fault that could hit nothing is a mistake in a test.
func TestImpossibleFaults(t *testing.T) {
	for _, fault := range []simruntime.Fault{
		{RPC: "Nothing"}, {RPC: "ListContainers", Messages: 1}, {Messages: 1}, {RPC: "GetContainerEvents", Messages: -1},
	} {
		for _, inject := range []func(){
			func() { simruntime.New(simruntime.Options{}).Inject(fault) },
			func() { simruntime.New(simruntime.Options{Faults: []simruntime.Fault{{}, fault}}) },
		} {
			func() {
				defer func() {
					if got, want := recover(), fmt.Sprintf("simruntime: impossible fault: %+v", fault); got != want {
						t.Errorf("%v, want a panic: %s", got, want)
					}
				}()
				inject()
			}()
		}
	}
}

// TestFaultWithProbability requires that only the number of a call determines whether it is hit,
// not the other calls.
func TestFaultWithProbability(t *testing.T) {
	hits := func(seed, ofFault uint64, others bool) (failed []int) {
		simulate(t, simruntime.Options{Seed: seed}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
			p := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0]
			rt.Inject(simruntime.Fault{RPC: "ContainerStatus", Code: codes.Internal, Probability: 0.25, Seed: ofFault})
			rt.Inject(simruntime.Fault{RPC: "ListContainers", Latency: 1, Probability: 0.5})
			for i := range 400 {
				if code, _ := statusOf(t.Context(), client, p.Containers[0].ID); code != codes.OK {
					failed = append(failed, i)
				}
				if others {
					listContainers(t, client)
				}
			}
			if got := rt.Stats().RPCs["ContainerStatus"]; got.Spoiled != int64(len(failed)) {
				t.Errorf("counted %+v, want %d spoiled", got, len(failed))
			}
		})
		return failed
	}
	first := hits(3, 0, false)
	if len(first) < 70 || len(first) > 130 {
		t.Errorf("%d of 400 calls failed, want about 100", len(first))
	}
	if again := hits(3, 0, true); !slices.Equal(first, again) {
		t.Errorf("the same seed hits the calls %v and %v", first, again)
	}
	if other := hits(4, 0, false); slices.Equal(first, other) {
		t.Error("another seed hits the same calls")
	}
	ofFault := hits(3, 5, false)
	if again, other := hits(4, 5, false), hits(3, 6, false); !slices.Equal(ofFault, again) || slices.Equal(ofFault, other) {
		t.Errorf("the same seed of a fault hits the calls %v and %v, another one %v", ofFault, again, other)
	}
}

// Faults without a seed hit calls of their own.
func TestFaultsDrawApart(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		id := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0].Containers[0].ID
		for range 2 {
			rt.Inject(simruntime.Fault{Latency: ms, Probability: 0.5})
		}
		hits := make(map[time.Duration]int)
		for range 100 {
			_, took := statusOf(t.Context(), client, id)
			hits[took]++
		}
		if hits[0] == 0 || hits[ms] == 0 || hits[2*ms] == 0 {
			t.Errorf("the calls took %v, want none, one and both of the latencies", hits)
		}
		rt.ClearAll()
		var drawn [2]string
		for n := range drawn { // the second one after the end of the first
			end := rt.Inject(simruntime.Fault{Code: codes.Internal, Probability: 0.5})
			for range 50 {
				code, _ := statusOf(t.Context(), client, id)
				drawn[n] += fmt.Sprint(code == codes.OK, " ")
			}
			end()
		}
		if drawn[0] == drawn[1] {
			t.Errorf("a fault and the next one both hit %s", drawn[0])
		}
	})
}

// Two calls execute at a time. Calls that wait may give up.
func TestConcurrencyLimit(t *testing.T) {
	opts := simruntime.Options{Faults: []simruntime.Fault{{RPC: "ContainerStatus", Latency: 10 * ms}}}
	simulate(t, opts, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		rt.SetMaxConcurrent(2)
		p := rt.Populate(simruntime.Population{Pods: 1, Containers: 1})[0]
		ctx, cancel := context.WithTimeout(t.Context(), 25*ms)
		defer cancel()
		ends := make(chan string, 8)
		for range cap(ends) {
			go func() {
				code, took := statusOf(ctx, client, p.Containers[0].ID)
				ends <- fmt.Sprint(code, " after ", took)
			}()
		}
		time.Sleep(time.Second)
		var got []string
		for range cap(ends) {
			got = append(got, <-ends)
		}
		slices.Sort(got)
		if want := []string{
			"DeadlineExceeded after 25ms", "DeadlineExceeded after 25ms", "DeadlineExceeded after 25ms", "DeadlineExceeded after 25ms", // two of them began
			"OK after 10ms", "OK after 10ms", "OK after 20ms", "OK after 20ms",
		}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if s := rt.Stats(); s.PeakInFlight != 2 || s.InFlight != 0 || s.RPCs["ContainerStatus"].Calls != 8 || s.RPCs["ContainerStatus"].Time != 50*ms {
			t.Errorf("at the end %+v", s)
		}
		rt.ResetStats()
		if s := rt.Stats(); s.PeakInFlight != 0 || s.Calls() != 0 || s.DroppedEvents != 0 {
			t.Errorf("after the reset %+v", s)
		}
		go func() {
			code, took := statusOf(t.Context(), client, p.Containers[0].ID)
			ends <- fmt.Sprint(code, " after ", took)
		}()
		synctest.Wait()
		if s := rt.Stats(); s.PeakInFlight != 1 || s.InFlight != 1 {
			t.Errorf("during a call %+v", s)
		}
		rt.ResetStats()
		rt.SetMaxConcurrent(1) // of later calls
		if got, want := <-ends, "OK after 10ms"; got != want || rt.Stats().PeakInFlight != 1 || rt.Stats().InFlight != 0 {
			t.Errorf("a call in flight during a reset and a new bound: %s, %+v, want %s and a peak of 1", got, rt.Stats(), want)
		}
		rt.Inject(simruntime.Fault{Code: codes.Internal, After: 1, Times: 1})
		go statusOf(t.Context(), client, p.Containers[0].ID)
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), 5*ms)
		defer cancel()
		statusOf(short, client, p.Containers[0].ID) // gives up before it executes
		if code, took := statusOf(t.Context(), client, p.Containers[0].ID); code != codes.Internal || took != 15*ms {
			t.Errorf("the second call that executes ended with %v after %v, want the fault of the second one after 15ms", code, took)
		}
	})
}

// SleepAfterCall sleeps from the first call on, or until its context ends.
func TestSleepAfterCall(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		errLate := errors.New("late")
		sleep := func(most, want time.Duration, end error) {
			t.Helper()
			ctx, cancel := context.WithTimeoutCause(t.Context(), most, errLate)
			defer cancel()
			began := time.Now()
			if err := rt.SleepAfterCall(ctx, time.Minute); !errors.Is(err, end) || time.Since(began) != want {
				t.Errorf("it ended with %v after %v, want %v after %v", err, time.Since(began), end, want)
			}
		}
		sleep(time.Hour, time.Hour, errLate)
		time.AfterFunc(time.Second, func() { listPods(t, client) })
		sleep(time.Hour, 61*time.Second, nil)
		sleep(time.Second, time.Second, errLate)
	})
}
