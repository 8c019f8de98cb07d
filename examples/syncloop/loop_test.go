package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
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

// sick is a pipeline that is not healthy, or whose pods cannot be read, for some time.
type sick struct {
	node.Pipeline
	unhealthy, fails atomic.Bool
}

func (s *sick) Healthy() (bool, error) {
	if s.unhealthy.Load() {
		return false, errors.New("it is sick")
	}
	return s.Pipeline.Healthy()
}

func (s *sick) Pods(ctx context.Context, uids ...pleg.PodUID) ([]cache.Entry, pleg.Position, error) {
	if s.fails.Load() {
		return nil, pleg.Position{}, errors.New("it fails")
	}
	return s.Pipeline.Pods(ctx, uids...)
}

// printed is what the loop has printed since it was last taken.
type printed struct {
	mu   sync.Mutex
	text string
}

func (p *printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text += string(text)
	return len(text), nil
}

func (p *printed) take() (text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, p.text = p.text, ""
	return text
}

// The loop does nothing while the pipeline is unhealthy, and goes on afterwards. A sync of all pods that fails
// is skipped.
func TestSyncLoopSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Runtime.Set("a", "c1=running /s=running")
		p.Start(t)
		var out printed
		s := &sick{Pipeline: p}
		kit.Run(t, func(ctx context.Context) error { return syncPods(ctx, s, &out) })
		prints := func(words string, lasts time.Duration) string {
			out.take()
			p.Runtime.Set("a", words)
			time.Sleep(lasts)
			synctest.Wait()
			return out.take()
		}
		time.Sleep(2500 * time.Millisecond)
		s.unhealthy.Store(true)
		prints("c1=running c2=running /s=running", 2*time.Second) // the loop waited for this event
		if got := prints("c1=running c2=running c3=running /s=running", 20*time.Second); got != strings.Repeat("skip: it is sick\n", 20) {
			t.Errorf("while the pipeline is unhealthy: %q, want a skip each second", got)
		}
		s.unhealthy.Store(false)
		s.fails.Store(true)
		if got := prints("c1=running /s=running", 20*time.Second); !strings.Contains(got, "skip: it fails\n") || !strings.Contains(got, "sync ns/name-a: 1 of 1 containers run\n") {
			t.Errorf("while all pods cannot be read: %q, want skips and the sync of what changed", got)
		}
		s.fails.Store(false)
		if got := prints("c1=exited /s=running", 2*time.Second); !strings.Contains(got, "clean up ns/name-a of-c1\n") {
			t.Errorf("afterwards: %q, want the clean-up of c1", got)
		}
		s.unhealthy.Store(true) // the loop ends while it waits
		time.Sleep(2 * time.Second)
	})
}
