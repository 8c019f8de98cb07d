package pipeline_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func Example() {
	runtime := plegtest.New() // or cri.New, which talks to any CRI endpoint
	runtime.Set("default/web", "nginx=running /sandbox=running")
	p, err := pipeline.New(pipeline.Options{Runtime: runtime})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := p.Subscribe(pleg.SubscribeOptions{Name: "example", Statuses: true, Filter: pleg.Filter{OmitSandboxes: true}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for ev := range sub.Events() {
			fmt.Println(ev.Type, ev.PodNamespace, ev.ContainerName, ev.Status.IPs)
			stop()
		}
	}()
	fmt.Println(p.Run(ctx))
	// Output:
	// ContainerStarted default of-nginx [10.0.0.1]
	// <nil>
}

// run runs a pipeline with one pod, and returns when its first list is inspected.
func run() (p *pipeline.Pipeline, runtime *plegtest.Runtime, stop func()) {
	runtime = plegtest.New()
	runtime.Set("default/web", "nginx=running /sandbox=running")
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Run(ctx) }()
	if err := p.RelistAll(ctx); err != nil {
		log.Fatal(err)
	}
	return p, runtime, func() { cancel(); <-ended }
}

// A program that has changed a pod waits for a status that shows the change. In the process,
// it is Pipeline.Cache().GetNewerThan.
func ExamplePipeline_PodStatus() {
	p, runtime, stop := run()
	defer stop()
	runtime.Set("default/web", "nginx=exited /sandbox=running")
	status, err := p.PodStatus(context.Background(), "default/web", time.Now())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Container("nginx").State)
	// Output: exited
}

// A program that keeps the position of its last event lacks no event after a pause.
func ExamplePipeline_Watch_resume() {
	p, runtime, stop := run()
	defer stop()
	var kept pleg.Position
	for ev, err := range p.Watch(context.Background(), pleg.SubscribeOptions{Replay: true}) {
		if err != nil {
			log.Fatal(err)
		}
		if at, ok := ev.Position(); ok {
			kept = at
		}
		if ev.Type == pleg.Synced {
			break
		}
	}
	runtime.Set("default/web", "nginx=exited /sandbox=running")
	for ev, err := range p.Watch(context.Background(), pleg.SubscribeOptions{After: kept}) {
		if err != nil {
			log.Fatal(err)
		}
		if ev.Type == pleg.Gap {
			fmt.Println("too late: what follows replaces everything")
		}
		if ev.Type == pleg.ContainerDied {
			fmt.Println(ev.Type, ev.ContainerName)
			break
		}
	}
	// Output: ContainerDied of-nginx
}

func ExamplePipeline_Lookup() {
	p, _, stop := run()
	defer stop()
	// lookup.Query{PID: pid} and lookup.Query{Cgroup: inode} find a process and a cgroup.
	c, err := p.Lookup(context.Background(), lookup.Query{Container: "nginx"})
	fmt.Println(c.PodNamespace, c.Name, c.State, err)
	_, err = p.Lookup(context.Background(), lookup.Query{Container: "none", Wait: time.Second})
	fmt.Println(err)
	// Output:
	// default of-nginx running <nil>
	// look up container none: no container of this node
}
