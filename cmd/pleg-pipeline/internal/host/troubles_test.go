package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// notUTF8 sends each ? as a byte that is not UTF-8.
type notUTF8 struct{ encoding.CodecV2 }

func (c notUTF8) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(bytes.ReplaceAll(data.Materialize(), []byte("?"), []byte{0xff}))}, nil
}

// pods returns a runtime with pods, each with a sandbox with annotations of this size and a container.
func pods(n, annotations int) *rawruntime.Runtime {
	r := &rawruntime.Runtime{}
	for i := range n {
		id := fmt.Sprint(i)
		r.Sandboxes = append(r.Sandboxes, &runtimeapi.PodSandbox{
			Id: "s" + id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u" + id, Namespace: "shop", Name: "web-" + id},
			Annotations: map[string]string{"a": strings.Repeat("x", annotations+i)},
		})
		r.Containers = append(r.Containers, &runtimeapi.Container{Id: "c" + id, PodSandboxId: "s" + id, Metadata: &runtimeapi.ContainerMetadata{Name: "nginx"}})
	}
	return r
}

// In each row of TestTroubles a runtime has one trouble. The trouble is found in the first seconds, keeps its
// time, and ends with its cause.
func TestTroubles(t *testing.T) {
	container := func(c *runtimeapi.Container) *rawruntime.Runtime {
		r := pods(1, 0)
		c.PodSandboxId = "s0"
		r.Containers = append(r.Containers, c)
		return r
	}
	of := func(c *runtimeapi.Container) *rawruntime.Runtime {
		return &rawruntime.Runtime{Containers: []*runtimeapi.Container{c}}
	}
	condition := func(kind string, met bool) *rawruntime.Runtime {
		r := pods(1, 0)
		r.Conditions = []*runtimeapi.RuntimeCondition{{Type: kind, Status: met, Reason: "Broken", Message: "no plugin"}}
		return r
	}
	secondFails := func(r *rawruntime.Runtime) *rawruntime.Runtime { // every second question for its conditions fails
		var asked atomic.Int64
		r.Before = func(_ context.Context, request any) error {
			if _, is := request.(*runtimeapi.StatusRequest); is && asked.Add(1)%2 == 0 {
				return status.Error(codes.Unavailable, "busy")
			}
			return nil
		}
		return r
	}
	ofNoPod := pods(1, 0)
	ofNoPod.Sandboxes = append(ofNoPod.Sandboxes, &runtimeapi.PodSandbox{Id: "s-none", Annotations: map[string]string{"a": strings.Repeat("x", 200)}})
	bothLarge := pods(100, 101_000)
	for i, c := range bothLarge.Containers {
		c.Annotations = map[string]string{"a": strings.Repeat("x", 110_000-i)}
	}
	twoBad := pods(2, 0)
	twoBad.Containers[0].Metadata, twoBad.Containers[1].Metadata = nil, nil
	labels := map[string]string{"io.kubernetes.pod.uid": "u9", "io.kubernetes.pod.name": "db-0", "io.kubernetes.pod.namespace": "bank"}
	labeled := pods(1, 0)
	labeled.Sandboxes = append(labeled.Sandboxes, &runtimeapi.PodSandbox{Id: "s9", Labels: labels})
	orphan := pods(1, 0)
	orphan.Containers = append(orphan.Containers, &runtimeapi.Container{Id: "0123456789abcdef", PodSandboxId: "gone", Labels: labels})
	noID := pods(1, 0)
	noID.Sandboxes = append([]*runtimeapi.PodSandbox{{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u7", Namespace: "park", Name: "tree-0"}}}, noID.Sandboxes...)
	noID.Containers[0].Metadata = nil
	sandbox := func(meta *runtimeapi.PodSandboxMetadata, labels map[string]string) *rawruntime.Runtime {
		r := pods(1, 0)
		r.Sandboxes = append(r.Sandboxes, &runtimeapi.PodSandbox{Id: "s9", Metadata: meta, Labels: labels, RuntimeHandler: "run?"})
		return r
	}
	newer := container(&runtimeapi.Container{Id: "c9", Metadata: &runtimeapi.ContainerMetadata{Name: "d?b"}})
	newer.After = func(answer any) any { // with fields that this program does not know
		if list, is := answer.(*runtimeapi.ListContainersResponse); is {
			fields := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte("new"))
			list.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(fields, 1, protowire.VarintType), 7))
		}
		return answer
	}
	onlyUID := map[string]string{"io.kubernetes.pod.uid": "u9"}
	const notRead = " has text that is not UTF-8, so that a kubelet cannot read the list"
	for name, test := range map[string]struct {
		runtime *rawruntime.Runtime
		want    string // "" for none
	}{
		"nothing":     {pods(3, 0), ""},
		"ready":       {condition("NetworkReady", true), ""},
		"unknown":     {condition("Other", false), ""},
		"no network":  {condition("NetworkReady", false), "network plugin problem: the network of the runtime is not ready: Broken no plugin"},
		"not ready":   {condition("RuntimeReady", false), "runtime not ready problem: the runtime is not ready: Broken no plugin"},
		"says little": {secondFails(condition("NetworkReady", false)), "network plugin problem: the network of the runtime is not ready: Broken no plugin"},
		"half":        {pods(100, 100_000), ""},
		"almost":      {pods(100, 101_000), "list too large warning: the list of sandboxes is almost too large: 9.6 MiB, 60 % of the 16.0 MiB that a kubelet accepts; the largest pods in it: shop/web-99 98.8 KiB (annotations 98.7 KiB), shop/web-98 98.8 KiB (annotations 98.7 KiB), shop/web-97 98.8 KiB (annotations 98.7 KiB)"},
		"both large": {bothLarge, "list too large warning: the list of sandboxes is almost too large: 9.6 MiB, 60 % of the 16.0 MiB that a kubelet accepts; the largest pods in it: shop/web-99 98.8 KiB (annotations 98.7 KiB), shop/web-98 98.8 KiB (annotations 98.7 KiB), shop/web-97 98.8 KiB (annotations 98.7 KiB)" +
			"list too large warning: the list of containers is almost too large: 10.5 MiB, 66 % of the 16.0 MiB that a kubelet accepts; the largest pods in it: shop/web-0 107.4 KiB (annotations 107.4 KiB), shop/web-1 107.4 KiB (annotations 107.4 KiB), shop/web-2 107.4 KiB (annotations 107.4 KiB)"},
		"of no pod":  {ofNoPod, "runtime fails problem: the list of sandboxes has malformed items: sandbox without a name (s-none) has no metadata"},
		"two":        {twoBad, "runtime fails problem: the list of containers has malformed items: container without a name (c0) of shop/web-0 has no metadata; and 1 more"},
		"labels":     {labeled, "runtime fails problem: the list of sandboxes has malformed items: sandbox without a name (s9) of bank/db-0 has no metadata"},
		"metadata":   {sandbox(&runtimeapi.PodSandboxMetadata{Uid: "u7", Namespace: "park", Name: "tree-0"}, labels), "runtime fails problem: the list of sandboxes has malformed items: sandbox tree-0 (s9) of park/tree-0" + notRead},
		"only a UID": {sandbox(&runtimeapi.PodSandboxMetadata{Uid: "u7"}, onlyUID), "runtime fails problem: the list of sandboxes has malformed items: sandbox without a name (s9) of u7" + notRead},
		"its label":  {sandbox(&runtimeapi.PodSandboxMetadata{}, onlyUID), "runtime fails problem: the list of sandboxes has malformed items: sandbox without a name (s9) of u9" + notRead},
		"both":       {container(&runtimeapi.Container{Id: "c9", Labels: labels}), "runtime fails problem: the list of containers has malformed items: container without a name (c9) of shop/web-0 has no metadata"},
		"of a UID":   {of(&runtimeapi.Container{Id: "c9", Labels: onlyUID}), "runtime fails problem: the list of containers has malformed items: container without a name (c9) of u9 has no metadata"},
		"no sandbox": {orphan, "runtime fails problem: the list of containers has malformed items: container without a name (0123456789abc) of bank/db-0 has no metadata"},
		"of another": {noID, "runtime fails problem: the list of sandboxes has malformed items: sandbox tree-0 (no id) has no id" +
			"runtime fails problem: the list of containers has malformed items: container without a name (c0) of shop/web-0 has no metadata"},
		"no id":       {container(&runtimeapi.Container{Metadata: &runtimeapi.ContainerMetadata{Name: "x"}}), "runtime fails problem: the list of containers has malformed items: container x (no id) of shop/web-0 has no id"},
		"no metadata": {container(&runtimeapi.Container{Id: "c9"}), "runtime fails problem: the list of containers has malformed items: container without a name (c9) of shop/web-0 has no metadata"},
		"not UTF-8":   {container(&runtimeapi.Container{Id: "c9", Metadata: &runtimeapi.ContainerMetadata{Name: "d?b"}}), "runtime fails problem: the list of containers has malformed items: container d\ufffdb (c9) of shop/web-0 has text that is not UTF-8, so that a kubelet cannot read the list"},
		"and newer":   {newer, "runtime fails problem: the list of containers has malformed items: container d\ufffdb (c9) of shop/web-0 has text that is not UTF-8, so that a kubelet cannot read the list"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			requireTrouble(t, withoutSockets, connect(t, test.runtime), podcache.New(), test.want)
		})
	}
}

// A condition that the runtime no longer reports is no trouble, and one that it reports again is a new trouble.
func TestConditionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, began := pods(1, 0), host.New(withoutSockets), time.Now()
		r.After = func(answer any) any {
			if _, is := answer.(*runtimeapi.StatusResponse); is {
				broken := &runtimeapi.RuntimeCondition{Type: "RuntimeReady", Status: int(time.Since(began).Seconds())/15%2 == 1}
				answer = &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{broken}}}
			}
			return answer
		}
		conn := connect(t, r)
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, conn, podcache.New()) })
		for _, want := range []string{"", "500ms", "500ms", "", "", "30s", "30s", "30s", "", "1m0s", "1m0s"} { // since, at 0.1 s and each 6.9 s later
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			var found pleg.Report
			got := ""
			if w.Report(&found); len(found.Troubles) > 0 {
				got = found.Troubles[0].Since.Sub(began).String()
			}
			if got != want {
				t.Errorf("after %v: since %q, want %q", time.Since(began), got, want)
			}
			time.Sleep(6800 * time.Millisecond)
		}
	})
}

// A runtime that does not answer is asked again: each question ends after its time.
func TestQuestionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ended := make(map[string]map[time.Duration]bool) // of each call
		r, w := pods(1, 0), host.New(withoutSockets)
		r.Before = func(ctx context.Context, request any) error {
			asked := time.Now()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			kind := fmt.Sprintf("%T", request)
			if ended[kind] == nil {
				ended[kind] = make(map[time.Duration]bool)
			}
			ended[kind][time.Since(asked)] = true
			return ctx.Err()
		}
		conn := connect(t, r)
		stop := kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, conn, podcache.New()) })
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		mu.Lock()
		got := fmt.Sprint(ended)
		mu.Unlock()
		const want = "map[*v1.ImageFsInfoRequest:map[5s:true] *v1.ListContainersRequest:map[20s:true] *v1.ListPodSandboxRequest:map[20s:true] *v1.StatusRequest:map[5s:true]]"
		if got != want {
			t.Errorf("the questions ended after %s, want %s", got, want)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returns %v, want the end of its context", err)
		}
	})
}

// TestEachTroubleHasItsTime uses two lists that get malformed one after the other. Once lists fail, nobody knows what is in
// them.
func TestEachTroubleHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, began := pods(1, 0), host.New(withoutSockets), time.Now()
		r.Containers[0].Metadata = nil
		r.After = func(answer any) any {
			if _, is := answer.(*runtimeapi.ListPodSandboxResponse); is && time.Since(began) > 10*time.Minute {
				answer = &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s0"}}}
			}
			return answer
		}
		r.Before = func(_ context.Context, request any) error {
			_, is := request.(*runtimeapi.ListContainersRequest)
			_, other := request.(*runtimeapi.ListPodSandboxRequest)
			if after := time.Since(began); is && after > 20*time.Minute && after < 22*time.Minute || other && after > 22*time.Minute {
				return status.Error(codes.Unavailable, "busy")
			}
			return nil
		}
		conn := connect(t, r)
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, conn, podcache.New()) })
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		var found pleg.Report
		if w.Report(&found); len(found.Troubles) != 2 {
			t.Fatalf("found %+v, want one for each list", found.Troubles)
		}
		if sandboxes, containers := found.Troubles[0].Since, found.Troubles[1].Since; sandboxes.Sub(containers) < 9*time.Minute {
			t.Errorf("sandboxes since %v, containers since %v, want 10 minutes between them", sandboxes, containers)
		}
		for _, of := range []string{"containers", "sandboxes"} {
			time.Sleep(2*time.Minute - time.Second)
			found = pleg.Report{}
			if w.Report(&found); len(found.Troubles) > 0 {
				t.Errorf("while lists of %s fail: %+v", of, found.Troubles)
			}
			if _, lists := w.Facts(); len(lists) != 2 {
				t.Errorf("while lists of %s fail, the last known are %+v, want both", of, lists)
			}
		}
	})
}

var withoutSockets = host.Options{Usage: usage, Sockets: func() ([]host.Socket, error) { return nil, nil }}

// The troubles that the runtime reports come first, then those of the lists and those of the pods.
func TestTroublesHaveAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, cache := pods(1, 0), podcache.New()
		r.Conditions = []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady"}, {Type: "NetworkReady", Message: "no plugin"}}
		r.Sandboxes[0].Metadata, r.Containers[0].Metadata = nil, nil
		cache.Set("u", &pleg.PodStatus{UID: "u", Sandboxes: []*pleg.SandboxStatus{{ID: "s", Ready: true}}}, nil, time.Now())
		requireTrouble(t, withoutSockets, connect(t, r), cache, "runtime not ready problem: the runtime is not ready: "+
			"network plugin problem: the network of the runtime is not ready: no plugin"+
			"runtime fails problem: the list of sandboxes has malformed items: sandbox without a name (s0) has no metadata"+
			"runtime fails problem: the list of containers has malformed items: container without a name (c0) has no metadata"+
			"network plugin warning: the network plugin gave no address: 1 of 1 sandboxes are ready and have none")
	})
}

// The sizes of the lists count all bytes, and name the three pods with the most.
func TestListSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := pods(5, 300), host.New(withoutSockets)
		r.Containers[2].Annotations = map[string]string{"bb": "yyyy", "c": "z"}
		r.Containers[4].Labels = map[string]string{"l": strings.Repeat("x", 30)}
		if facts, lists := w.Facts(); facts != (host.Facts{}) || lists != nil {
			t.Errorf("before the first look: %+v, %+v", facts, lists)
		}
		conn := connect(t, r)
		kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, conn, podcache.New()) })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, lists := w.Facts()
		got, err := json.Marshal(lists)
		kit.Must(t, err)
		const want = `[{"method":"ListPodSandbox","bytes":1685,"limitBytes":16777216,"largest":[{"pod":"shop/web-4","bytes":336,"annotationBytes":305},` +
			`{"pod":"shop/web-3","bytes":335,"annotationBytes":304},{"pod":"shop/web-2","bytes":334,"annotationBytes":303}]},` +
			`{"method":"ListContainers","bytes":152,"limitBytes":16777216,"largest":[{"pod":"shop/web-4","bytes":54,"annotationBytes":0},{"pod":"shop/web-2","bytes":37,"annotationBytes":8},` +
			`{"pod":"shop/web-0","bytes":17,"annotationBytes":0}]}]`
		if string(got) != want {
			t.Errorf("the lists are %s, want %s", got, want)
		}
	})
}

// connect serves a runtime, and returns a connection to it.
func connect(t *testing.T, r *rawruntime.Runtime) *grpc.ClientConn {
	t.Helper()
	var m kit.Memory
	rawruntime.Serve(t, r, m.Listen(), grpc.ForceServerCodecV2(notUTF8{encoding.GetCodecV2(proto.Name)}), grpc.MaxSendMsgSize(1<<30))
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithContextDialer(m.Dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cri.DefaultMaxRecvBytes)))
	kit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func requireTrouble(t *testing.T, o host.Options, conn grpc.ClientConnInterface, cache *podcache.Cache, want string) {
	t.Helper()
	w := host.New(o)
	kit.Run(t, func(ctx context.Context) error { return w.Run(ctx, conn, cache) })
	began := time.Now()
	for _, passes := range []time.Duration{2 * time.Second, 2 * time.Minute} {
		time.Sleep(passes)
		synctest.Wait()
		var r pleg.Report
		w.Report(&r)
		var got string
		for _, found := range r.Troubles {
			got += fmt.Sprintf("%s %s: %s %s%s", found.Cause, map[bool]string{true: "problem", false: "warning"}[found.Problem], found.Subject, found.What, found.Detail)
			if since := found.Since.Sub(began); since < 0 || since > time.Second {
				t.Errorf("since %v, want its first look", found.Since)
			}
		}
		_, lists := w.Facts()
		for n, l := range lists {
			if l.Method != []string{"ListPodSandbox", "ListContainers"}[n] {
				t.Errorf("list %d is of %s", n, l.Method)
			}
			if len(l.Largest) > 3 || slices.ContainsFunc(l.Largest, func(p host.PodSize) bool { return p.Pod == "" }) {
				t.Errorf("the largest pods are %+v, want three with names", l.Largest)
			}
		}
		if got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
}

// TestCounts uses caches with many dead containers, and with sandboxes without an address.
func TestCounts(t *testing.T) {
	status := func(running, exited, dead int, ips ...string) *pleg.PodStatus {
		s := &pleg.PodStatus{UID: "u", Namespace: "shop", Name: "web-0", Sandboxes: []*pleg.SandboxStatus{{ID: "s", Ready: true, IPs: ips}}}
		for range dead {
			s.Sandboxes = append(s.Sandboxes, &pleg.SandboxStatus{})
		}
		for n := range running + exited {
			s.Containers = append(s.Containers, &pleg.ContainerStatus{State: map[bool]pleg.State{true: pleg.StateRunning, false: pleg.StateExited}[n < running]})
		}
		return s
	}
	onHost := status(1, 0, 0)
	onHost.Sandboxes[0].HostNetwork = true
	starts := status(40, 200, 0, "10.0.0.1")
	starts.Containers = append(starts.Containers, &pleg.ContainerStatus{State: pleg.StateCreated})
	few := status(0, 10, 3)
	few.Name = "db-0"
	for name, test := range map[string]struct {
		status *pleg.PodStatus
		want   string
	}{
		"of the host": {onHost, ""},
		"few":         {status(1, 199, 0, "10.0.0.1"), ""},
		"enough":      {status(40, 200, 0, "10.0.0.1"), "too many dead containers warning: the runtime has many dead containers: 200 containers have exited and 0 sandboxes are not ready, and all are in every list; most in shop/web-0, 200"},
		"one starts":  {starts, "too many dead containers warning: the runtime has many dead containers: 200 containers have exited and 0 sandboxes are not ready, and all are in every list; most in shop/web-0, 200"},
		"of three pods": {status(10, 171, 4, "10.0.0.1"), "too many dead containers warning: the runtime has many dead containers: 191 containers have exited and 10 sandboxes are not ready, and all are in every list; most in shop/web-0, 175" +
			"network plugin warning: the network plugin gave no address: 2 of 13 sandboxes are ready and have none"},
		"of two alike":  {status(1, 5, 100, "10.0.0.1"), "too many dead containers warning: the runtime has many dead containers: 10 containers have exited and 200 sandboxes are not ready, and all are in every list; most in shop/web-0, 105"},
		"many run too":  {status(41, 200, 0, "10.0.0.1"), ""},
		"of both kinds": {status(20, 90, 150, "10.0.0.1"), "too many dead containers warning: the runtime has many dead containers: 90 containers have exited and 150 sandboxes are not ready, and all are in every list; most in shop/web-0, 240"},
		"not many":      {status(500, 0, 999, "10.0.0.1"), ""},
		"sandboxes":     {status(500, 0, 1000, "10.0.0.1"), "too many dead containers warning: the runtime has many dead containers: 0 containers have exited and 1000 sandboxes are not ready, and all are in every list; most in shop/web-0, 1000"},
		"no address":    {status(1, 0, 0), "network plugin warning: the network plugin gave no address: 1 of 1 sandboxes are ready and have none"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			cache := podcache.New()
			cache.Set("-never inspected", nil, errors.New("broken"), time.Now()) // the first in order
			alike := *test.status
			alike.Name = "web-1"
			for n, of := range []*pleg.PodStatus{few, test.status, few, &alike} {
				if n == 1 || n == 3 && name == "of two alike" || n != 3 && name == "of three pods" {
					cache.Set(pleg.PodUID(fmt.Sprint(n)), of, nil, time.Now())
				}
			}
			requireTrouble(t, withoutSockets, images{}, cache, test.want)
		})
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1<<20 - 1: "1024.0 KiB", 1 << 20: "1.0 MiB", 5 << 30: "5120.0 MiB"} {
		if got := host.Size(bytes); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}
