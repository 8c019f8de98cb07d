// Command relistcost measures the cost of a relist of the kubelet's GenericPLEG on a large node:
// kubernetes#142022. It runs in the kubelet's surroundings against a simulated runtime, which is a
// process of its own, and prints a row of a table. With -churn, a container of one pod in a hundred
// is replaced before each relist: the kubelet relists once a second.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/pleg-pipeline/pleg-pipeline/kubelet/internal/surroundings"
)

type config struct {
	name, socket     string
	node             node
	serve, streaming bool
	relists          int
	profile          string
}

func main() {
	var c config
	flag.StringVar(&c.name, "name", "kubelet", "first cell of the row")
	flag.StringVar(&c.socket, "socket", "", "measure this runtime instead of a simulated one")
	flag.IntVar(&c.node.pods, "pods", 110, "pods of the simulated runtime")
	flag.IntVar(&c.node.containers, "containers", 2, "containers of each pod")
	flag.IntVar(&c.node.annotations, "annotations", 4096, "bytes of annotations of each pod and container")
	flag.BoolVar(&c.node.churn, "churn", false, "replace a container of a hundredth of the pods before each relist")
	flag.BoolVar(&c.node.projection, "projection", false, "list only what a relist uses, as field projection would")
	flag.BoolVar(&c.streaming, "streaming", false, "list with CRIListStreaming: a response has at most 16 MiB")
	flag.IntVar(&c.relists, "relists", 20, "number of relists that are measured")
	flag.StringVar(&c.profile, "cpuprofile", "", "write a CPU profile of the relists into this `file`")
	flag.BoolVar(&c.serve, "serve", false, "be the simulated runtime")
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx := klog.NewContext(context.Background(), klog.Background())
	var err error
	switch {
	case c.serve:
		err = c.node.serve(c.socket)
	case c.socket != "":
		err = c.measure(ctx)
	default:
		err = c.simulate(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "relistcost:", err)
		os.Exit(1)
	}
}

// simulate measures a simulated runtime, which is another process of this program.
func (c *config) simulate(ctx context.Context) (err error) {
	folder, err := os.MkdirTemp("", "relistcost-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	c.socket = filepath.Join(folder, "cri.sock")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n := &c.node
	server := exec.CommandContext(ctx, self, "-serve", "-socket", c.socket,
		"-pods", strconv.Itoa(n.pods), "-containers", strconv.Itoa(n.containers), "-annotations", strconv.Itoa(n.annotations),
		"-churn="+strconv.FormatBool(n.churn), "-projection="+strconv.FormatBool(n.projection))
	server.Stderr = os.Stderr
	ready, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return errors.New("the simulated runtime does not start")
	}
	return c.measure(ctx)
}

// warmUp is the number of relists before those that are measured: the first inspects every pod.
const warmUp = 4

func (c *config) measure(ctx context.Context) error {
	root, err := os.MkdirTemp("", "relistcost-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	manager, err := surroundings.Manager(ctx, surroundings.Client(c.socket, 2*time.Minute).WithUseStreaming(c.streaming), root)
	if err != nil {
		return err
	}
	events := make(chan *pleg.PodLifecycleEvent, 1000)
	var received atomic.Int64
	go func() {
		for range events {
			received.Add(1)
		}
	}()
	duration := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}
	generator := pleg.NewGenericPLEG(manager, events, duration, kubecontainer.NewCache(), clock.RealClock{})
	relist := generator.(interface{ Relist(context.Context) }).Relist

	for range warmUp {
		relist(ctx)
	}
	if _, err := generator.Healthy(); err != nil {
		return err
	}
	runtime.GC()
	received.Store(0)
	if c.profile != "" {
		f, err := os.Create(c.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	peak := watchHeap()
	before := now()
	for range c.relists {
		relist(ctx)
	}
	used := now().since(before, c.relists)
	used.peakMB = peak() / 1e6
	if c.node.churn && received.Load() < int64(c.relists) {
		return fmt.Errorf("%d events in %d relists with changes", received.Load(), c.relists)
	}
	fmt.Println(c.row(used))
	return nil
}

// usage is the usage of this process, in total or for a relist.
type usage struct {
	allocs, allocMB, cpuMS, gcs, peakMB float64
	pauses                              []uint64 // a histogram
	longestMS                           float64
}

func now() usage {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var self syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	return usage{
		allocs: float64(mem.Mallocs), allocMB: float64(mem.TotalAlloc) / 1e6,
		cpuMS: float64(self.Utime.Nano()+self.Stime.Nano()) / 1e6, gcs: float64(mem.NumGC),
		pauses: append([]uint64(nil), pauses().Counts...),
	}
}

func (u usage) since(before usage, relists int) usage {
	n := float64(relists)
	used := usage{
		allocs: (u.allocs - before.allocs) / n, allocMB: (u.allocMB - before.allocMB) / n,
		cpuMS: (u.cpuMS - before.cpuMS) / n, gcs: (u.gcs - before.gcs) / n,
	}
	bounds := pauses().Buckets
	for i, count := range u.pauses {
		if count > before.pauses[i] && !math.IsInf(bounds[i+1], 1) {
			used.longestMS = bounds[i+1] * 1e3
		}
	}
	return used
}

func pauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64Histogram()
}

// watchHeap samples the size of the heap until the function that it returns is called, which
// returns the largest.
func watchHeap() (peak func() float64) {
	debug.FreeOSMemory()
	done := make(chan struct{})
	var most uint64
	var wait sync.WaitGroup
	wait.Go(func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() float64 {
		close(done)
		wait.Wait()
		return float64(most)
	}
}

// row is a row of the table of docs/dev/upstream.md.
func (c *config) row(u usage) string {
	what := "idle"
	if c.node.churn {
		what = "1 %"
	}
	return fmt.Sprintf("| %s | %d | %s | %.0f | %.1f | %.1f | %.0f | %.2f | %.2f |",
		c.name, c.node.pods, what, u.allocs, u.allocMB, u.cpuMS, u.peakMB, u.gcs, u.longestMS)
}
