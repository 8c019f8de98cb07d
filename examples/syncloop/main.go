// Command syncloop shows a loop that acts on events, as the kubelet does: it syncs pods
// that changed, cleans up containers that exited, syncs all pods from time to time, and
// does nothing while the pipeline is unhealthy.
//
//	syncloop unix:///run/containerd/containerd.sock
package main

import (
	"context"
	"fmt"
	"io"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/examples/internal/frame"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var example = frame.Example{
	Name: "syncloop",
	Work: func(ctx context.Context, p *pipeline.Pipeline, events <-chan pipeline.Event, out io.Writer) error {
		l := &loop{healthy: p.Healthy, cache: p.Cache(), events: events, handler: printer{out}}
		return l.run(ctx)
	},
}

func main() { example.Main() }

// printer only prints what it would do.
type printer struct{ out io.Writer }

func (p printer) Sync(pod *pipeline.PodStatus) {
	running := 0
	for _, c := range pod.Containers {
		if c.State == pleg.StateRunning {
			running++
		}
	}
	fmt.Fprintf(p.out, "sync %s/%s: %d of %d containers run\n", pod.Namespace, pod.Name, running, len(pod.Containers))
}

func (p printer) CleanUp(ev pipeline.Event) {
	fmt.Fprintf(p.out, "clean up %s/%s %s\n", ev.PodNamespace, ev.PodName, ev.ContainerName)
}

func (p printer) Skip(why error) { fmt.Fprintln(p.out, "skip:", why) }
