package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// caller makes the calls that a relist needs and does nothing else: it keeps no
// statuses and reports changes of containers only. No client is faster with as many
// calls in flight.
type caller struct {
	runtime runtimeapi.RuntimeServiceClient
	width   int
	emit    func(probe.Event)
	// known are the states in the last list. It has sandboxes too.
	known map[string]string
}

// calls is the candidate without any work of its own.
func (c config) calls(runtime *cri.Client) probe.Candidate {
	return func(ctx context.Context, emit func(probe.Event)) error {
		caller := caller{runtimeapi.NewRuntimeServiceClient(runtime.Conn()), c.inspectors, emit, make(map[string]string)}
		tick := time.NewTicker(c.period)
		defer tick.Stop()
		for {
			if err := caller.relist(ctx); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-tick.C:
			}
		}
	}
}

func (c *caller) relist(ctx context.Context) error {
	began := time.Now()
	sandboxes, containers, err := c.list(ctx)
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		if c.known[s.Id] == "" {
			c.emit(probe.Event{Type: "ContainerStarted", ID: s.Id, At: began})
		}
		c.known[s.Id] = s.State.String()
	}
	changed := make(chan probe.Event, len(containers))
	for _, listed := range containers {
		state := listed.State.String()
		if c.known[listed.Id] != state {
			changed <- probe.Event{Type: eventTypes[listed.State], ID: listed.Id, At: began}
		}
		c.known[listed.Id] = state
	}
	close(changed)
	return c.ask(ctx, changed)
}

var eventTypes = map[runtimeapi.ContainerState]string{
	runtimeapi.ContainerState_CONTAINER_RUNNING: "ContainerStarted",
	runtimeapi.ContainerState_CONTAINER_EXITED:  "ContainerDied",
}

func (c *caller) list(ctx context.Context) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	var sandboxes *runtimeapi.ListPodSandboxResponse
	var containers *runtimeapi.ListContainersResponse
	lists, ctx := errgroup.WithContext(ctx)
	lists.Go(func() (err error) {
		sandboxes, err = c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		return err
	})
	lists.Go(func() (err error) {
		containers, err = c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return err
	})
	if err := lists.Wait(); err != nil {
		return nil, nil, fmt.Errorf("list: %w", err)
	}
	return sandboxes.Items, containers.Containers, nil
}

// ask asks for the status of each container that has changed, and emits its event
// once it is known.
func (c *caller) ask(ctx context.Context, changed <-chan probe.Event) error {
	told := make(chan probe.Event)
	calls, ctx := errgroup.WithContext(ctx)
	for range c.width {
		calls.Go(func() error {
			for e := range changed {
				if _, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: e.ID}); err != nil {
					return fmt.Errorf("status of %s: %w", e.ID, err)
				}
				told <- e
			}
			return nil
		})
	}
	var err error
	go func() {
		err = calls.Wait()
		close(told)
	}()
	for e := range told {
		c.emit(e)
	}
	return err
}
