package kubelet_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/utils/clock"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// settledCache is the kubelet's pod cache. It reports the time of each list whose
// changes are all in the cache.
type settledCache struct {
	kubecontainer.Cache
	lists chan time.Time
}

func (s *settledCache) UpdateTime(at time.Time) {
	s.Cache.UpdateTime(at)
	select {
	case s.lists <- at:
	default:
	}
}

// BenchmarkBurst measures a relist after a change of 110 pods with two containers,
// from its start until all changes are in the pod cache. It uses the kubelet's
// runtime manager and CRI client, and a simulated runtime with the latencies of a
// busy node.
func BenchmarkBurst(b *testing.B) {
	for _, impl := range []string{"stock", "pipeline"} {
		b.Run("impl="+impl+"/pods=110", func(b *testing.B) { benchmarkRelist(b, impl == "stock") })
	}
}

func benchmarkRelist(b *testing.B, stock bool) {
	const pods = 110
	rt, manager := simulated(b, pods)
	cache := &settledCache{Cache: kubecontainer.NewCache(), lists: make(chan time.Time)}
	events := make(chan *pleg.PodLifecycleEvent, 1000)
	durations := &pleg.RelistDuration{RelistPeriod: 200 * time.Millisecond, RelistThreshold: 3 * time.Minute}
	var generator interface {
		Start(ctx context.Context)
		Stop()
	} = kubelet.New(manager, events, durations, cache, clock.RealClock{})
	if stock {
		generator, _ = pleg.NewGenericPLEG(manager, events, durations, cache, clock.RealClock{}).(*pleg.GenericPLEG)
	}
	generator.Start(b.Context())
	defer generator.Stop()
	<-cache.lists
	var sum time.Duration
	for b.Loop() {
		drain(events)
		rt.Burst(pods, simruntime.Replace)
		changed := time.Now()
		at := <-cache.lists
		for at.Before(changed) {
			at = <-cache.lists
		}
		sum += time.Since(at)
	}
	b.ReportMetric(float64(sum.Microseconds())/1000/float64(b.N), "ms/relist")
}

// noImages is an image service. No relist calls it.
type noImages struct {
	internalapi.ImageManagerService
}

// simulated returns the kubelet's runtime manager on a simulated runtime. What it
// needs only to start pods is nil or a stub.
func simulated(b *testing.B, pods int) (*simruntime.Runtime, kubecontainer.Runtime) {
	profile, err := simruntime.NewProfile(simruntime.ProfileNode)
	must(b, err)
	rt, err := simruntime.New(simruntime.Options{Profile: profile})
	must(b, err)
	_, err = rt.Populate(simruntime.Population{Pods: pods, Containers: 2})
	must(b, err)
	socket := filepath.Join(b.TempDir(), "cri.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rt.ListenAndServe(ctx, socket) }()
	b.Cleanup(func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			b.Errorf("serve the simulated runtime: %v", err)
		}
	})
	tracing := noop.NewTracerProvider()
	service, err := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint("unix://" + socket).
		WithConnectionTimeout(2 * time.Minute).WithTracerProvider(tracing).Build(ctx)
	must(b, err)
	b.Cleanup(func() {
		if err := service.Close(context.Background()); err != nil {
			b.Errorf("close the CRI client: %v", err)
		}
	})
	root, yes := b.TempDir(), true
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(ctx,
		&record.FakeRecorder{},
		proberesults.NewManager(), proberesults.NewManager(), proberesults.NewManager(),
		root, root, &cadvisorapi.MachineInfo{MachineID: "bench"},
		nil, int32(pods), kubecontainer.RealOS{}, nil, nil,
		flowcontrol.NewBackOff(time.Second, time.Minute),
		true, nil, 0, 0, "NeverVerify", nil, "", "", &yes, false, metav1.Duration{Duration: 100 * time.Millisecond}, nil,
		service, noImages{},
		cm.NewStubContainerManager(), logs.NewStubContainerLogManager(), nil,
		false, "", nil, nil, "", nil, tracing, nil, nil, nil)
	must(b, err)
	return rt, manager
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
