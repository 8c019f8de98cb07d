// Command kubelet runs a pod lifecycle event generator in the kubelet's surroundings, its
// runtime manager, CRI client and pod cache, against a CRI socket: the kubelet's own
// unmodified generator, or the pipeline in its place.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	pipelinepleg "github.com/pleg-pipeline/pleg-pipeline/kubelet"
	"github.com/pleg-pipeline/pleg-pipeline/kubelet/internal/surroundings"
)

// eventBuffer is enough for every event of the largest burst: the benchmark compares how fast
// events arrive, not how many are discarded. The kubelet's buffer is 1000 (plegChannelCapacity).
const eventBuffer = 1 << 15

type config struct {
	socket, root    string
	dropIn          bool
	period, timeout time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.socket, "socket", "", "socket of the container runtime")
	flag.StringVar(&c.root, "root", "", "folder for the files of the runtime manager")
	flag.BoolVar(&c.dropIn, "drop-in", false, "run the pipeline in place of GenericPLEG")
	flag.DurationVar(&c.period, "period", time.Second, "relist period")
	flag.DurationVar(&c.timeout, "timeout", 2*time.Minute, "deadline of a runtime call")
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx := klog.NewContext(context.Background(), klog.Background())
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		os.Exit(1)
	}
}

func (c config) run(ctx context.Context) error {
	if c.socket == "" || c.root == "" {
		return errors.New("-socket and -root are required")
	}
	runtime, err := surroundings.Manager(ctx, surroundings.Client(c.socket, c.timeout), c.root)
	if err != nil {
		return err
	}
	return probe.Serve(ctx, c.candidate(runtime), os.Stdin, os.Stdout)
}

// newGenerator returns a generator, whose events fit into its channel.
func (c config) newGenerator(runtime kubecontainer.Runtime) pleg.PodLifecycleEventGenerator {
	events := make(chan *pleg.PodLifecycleEvent, eventBuffer)
	durations := &pleg.RelistDuration{RelistPeriod: c.period, RelistThreshold: 3 * time.Minute}
	if c.dropIn {
		options := pipelinepleg.Options{RuntimeRequestTimeout: c.timeout}
		return pipelinepleg.NewWithOptions(options, runtime, events, durations, kubecontainer.NewCache(), clock.RealClock{})
	}
	return pleg.NewGenericPLEG(runtime, events, durations, kubecontainer.NewCache(), clock.RealClock{})
}

// listTimes knows when the last list of all pods began.
type listTimes struct {
	kubecontainer.Runtime
	last atomic.Pointer[time.Time]
}

func (l *listTimes) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	now := time.Now()
	l.last.Store(&now)
	return l.Runtime.GetPods(ctx, all)
}

// candidate runs the generator as the kubelet does. Its events do not name their relist: they get
// the time of the last list.
func (c config) candidate(runtime kubecontainer.Runtime) probe.Candidate {
	return func(ctx context.Context, emit func(probe.Event)) error {
		lists := &listTimes{Runtime: runtime}
		g := c.newGenerator(lists)
		g.Start(ctx) // runs until the process ends
		for {
			select {
			case e := <-g.Watch():
				at := time.Now()
				if list := lists.last.Load(); list != nil {
					at = *list
				}
				emit(event(e, at))
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

func event(e *pleg.PodLifecycleEvent, began time.Time) probe.Event {
	id, _ := e.Data.(string)
	return probe.Event{Type: string(e.Type), ID: id, At: began}
}
