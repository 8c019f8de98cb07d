package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// changing calls change after the first list of pods, before the loop subscribes.
type changing struct {
	node.Pipeline
	change func()
}

func (c *changing) Pods(ctx context.Context, uids ...pleg.PodUID) ([]cache.Entry, pleg.Position, error) {
	pods, position, err := c.Pipeline.Pods(ctx, uids...)
	if change := c.change; change != nil {
		c.change = nil
		change()
	}
	return pods, position, err
}

// The loop gets a change between its first sync and its subscription too, and syncs all pods every ten
// seconds.
func TestSyncLoopMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Runtime.Set("a", "c1=running /s=running")
		p.Start(t)
		var out strings.Builder
		stop := kit.Run(t, func(ctx context.Context) error {
			return syncPods(ctx, &changing{p, func() { p.Runtime.Set("a", "c1=exited /s=exited"); time.Sleep(2 * time.Second) }}, &out)
		})
		time.Sleep(5 * time.Second)
		p.Runtime.Set("a", "/s=exited") // the removal needs no sync
		time.Sleep(7500 * time.Millisecond)
		kit.Must(t, stop())
		const sync = "sync ns/name-a: 0 of 1 containers run\n"
		if got, want := out.String(), sync+sync+"clean up ns/name-a of-c1\n"+sync+"sync ns/name-a: 0 of 0 containers run\n"; !strings.HasSuffix(got, want) {
			t.Errorf("printed %q, want %q at the end", got, want)
		}
	})
}

// A loop that waits for a healthy pipeline ends with its context.
func TestSyncLoopEndsWhileUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Start(t)
		var out strings.Builder
		stop := kit.Run(t, func(ctx context.Context) error { return syncPods(ctx, p, &out) })
		time.Sleep(time.Second)
		p.Runtime.SetListFault(plegtest.Hang)
		time.Sleep(10 * time.Minute)
		kit.Must(t, stop())
		if n := strings.Count(out.String(), "skip: "); n < 60 {
			t.Errorf("it skipped %d times, want it to have waited for minutes", n)
		}
	})
}

// The end of the context is no error, even if the pipeline ends between the first sync and the subscription.
func TestSyncLoopEndsBeforeItSubscribes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Start(t)
		ctx, cancel := context.WithCancel(t.Context())
		end := func() {
			cancel()
			_ = p.Stop() // kit.Run reports the error
		}
		kit.Must(t, syncPods(ctx, &changing{p, end}, io.Discard))
	})
}
