package pipeline_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// oneContainer is a runtime with a single pod. Programs use package cri instead,
// which talks to any CRI endpoint.
type oneContainer struct{}

func (oneContainer) ListPods(context.Context) ([]*pleg.Pod, error) {
	return []*pleg.Pod{{
		UID: "8d0e", Name: "web", Namespace: "default",
		Containers: []*pleg.Container{{ID: "4f1c", Name: "nginx", State: pleg.StateRunning}},
	}}, nil
}

func (oneContainer) PodStatus(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	return &pleg.PodStatus{UID: pod.UID, Name: pod.Name, IPs: []string{"10.0.0.7"}}, nil
}

func Example() {
	p, err := pipeline.New(pipeline.Options{Runtime: oneContainer{}})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := p.Subscribe(pipeline.SubscribeOptions{Name: "example"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for ev := range sub.Events() {
			status, _ := p.Cache().Get(ev.PodUID)
			fmt.Println(ev.Type, ev.PodNamespace+"/"+ev.PodName, ev.ContainerName, status.IPs)
			stop()
		}
	}()
	fmt.Println(p.Run(ctx))
	// Output:
	// ContainerStarted default/web nginx [10.0.0.7]
	// context canceled
}
