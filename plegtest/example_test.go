package plegtest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func Example() {
	runtime := plegtest.New()
	runtime.Set("web", "nginx=running /sandbox=running")
	runtime.SetPodFault("web", plegtest.Fail(errors.New("runtime is busy")))

	p, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := p.Subscribe(pleg.SubscribeOptions{Name: "example"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()

	// The event is delivered after an inspection has succeeded.
	_, err = p.Cache().GetNewerThan(ctx, "web", time.Time{})
	fmt.Println("inspection failed:", err != nil)
	runtime.SetPodFault("web", nil)
	fmt.Println(plegtest.Words(<-sub.Events(), <-sub.Events()))

	// The pipeline finds the change at its next relist.
	runtime.Set("web", "nginx=exited:137:OOMKilled /sandbox=running")
	ev := <-sub.Events()
	fmt.Println(plegtest.Words(ev), "with code", *ev.ExitCode, ev.Reason)
	stop()
	fmt.Println(<-ended)
	// Output:
	// inspection failed: true
	// Started(nginx) Started(/sandbox)
	// Died(nginx) with code 137 OOMKilled
	// <nil>
}

// CRI events reach a pipeline that is configured to follow them.
func ExampleRuntime_Announce() {
	runtime := plegtest.New()
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := p.Subscribe(pleg.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerStarted}}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()

	runtime.Set("web", "nginx=running /sandbox=running")
	runtime.Announce("web", "nginx")
	fmt.Println(plegtest.Words(<-sub.Events()))
	stop()
	fmt.Println(<-ended)
	// Output:
	// Started(nginx)
	// <nil>
}

// A test of an embedder's own runtime.
func ExampleCheckRuntime() {
	TestRuntime := func(t *testing.T) {
		runtime := plegtest.New() // your own, with at least one pod
		runtime.Set("web", "nginx=running /sandbox=running")
		plegtest.CheckRuntime(t, runtime)
	}
	tests := []testing.InternalTest{{Name: "TestRuntime", F: TestRuntime}} // go test does this
	fmt.Println("passed:", testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, tests))
	// Output:
	// passed: true
}
