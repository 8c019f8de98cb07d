package lookup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func container(id pleg.ContainerID) lookup.Query { return lookup.Query{Container: id} }

func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.Runtime.Set("shop/web", "nginx=running old=exited /sandbox=running")
		p.StartBetweenLists(t)
		synctest.Wait()
		want := func(id pleg.ContainerID, check func(c lookup.Container) bool) {
			t.Helper()
			c, err := p.Lookup(t.Context(), container(id))
			if err != nil || c.ID != id || c.PodUID != "shop/web" || !check(c) {
				t.Errorf("Lookup of %s = %+v, %v", id, c, err)
			}
		}
		want("nginx", func(c lookup.Container) bool { return c.State == pleg.StateRunning && !c.Sandbox })
		want("old", func(c lookup.Container) bool { return c.State == pleg.StateExited && c.ExitCode == 3 })
		want("sandbox", func(c lookup.Container) bool {
			return c.State == pleg.StateRunning && c.Sandbox && c.PodLabels["pod"] == "web"
		})

		p.Runtime.Set("shop/web", "new=running /sandbox=running")
		kit.Relist(1)
		want("new", func(c lookup.Container) bool { return c.RemovedAt.IsZero() })
		want("nginx", func(c lookup.Container) bool { return !c.RemovedAt.IsZero() && c.State == pleg.StateExited })

		p.Runtime.Remove("shop/web")
		kit.Relist(1)
		want("new", func(c lookup.Container) bool { return !c.RemovedAt.IsZero() })
		want("sandbox", func(c lookup.Container) bool { return c.State == pleg.StateExited })
		time.Sleep(5*time.Minute - pipeline.DefaultRelistPeriod) // the list was half a period ago
		want("new", func(c lookup.Container) bool { return !c.RemovedAt.IsZero() })
		kit.Relist(1)
		if c, err := p.Lookup(t.Context(), container("new")); !errors.Is(err, lookup.ErrNotYet) {
			t.Errorf("Lookup of a container removed long ago = %+v, %v", c, err)
		}
	})
}

// An unknown container is not listed yet, or is not on this node. A list that begins later shows
// which of the two is true.
func TestLookupWaits(t *testing.T) {
	errStop := errors.New("the test ends it")
	for name, tc := range map[string]struct {
		after func(p *kit.Pipeline)
		ends  time.Duration // the context, if not 0
		err   error
		took  time.Duration
	}{
		"it is listed": {after: func(p *kit.Pipeline) { p.Runtime.Set("late", "c=running") }, took: 0},
		"another inspection hangs": {
			after: func(p *kit.Pipeline) {
				p.Runtime.SetPodFault("other", plegtest.Hang)
				p.Runtime.Set("other", "o=running")
				p.Runtime.Set("late", "c=running")
			},
			took: 0,
		},
		"its pod is known, another inspection hangs": {
			after: func(p *kit.Pipeline) {
				p.Runtime.Set("late", "/s=running")
				kit.Relist(1)
				p.Runtime.SetPodFault("other", plegtest.Hang)
				p.Runtime.Set("other", "o=running")
				p.Runtime.Set("late", "c=running /s=running")
			},
			took: 0,
		},
		"its inspection takes time": {
			after: func(p *kit.Pipeline) {
				p.Runtime.SetPodFault("late", plegtest.Delay(3*time.Second))
				p.Runtime.Set("late", "c=running")
			},
			took: 3 * time.Second,
		},
		"its inspection fails": {
			after: func(p *kit.Pipeline) {
				p.Runtime.SetPodFault("late", plegtest.Fail(errors.New("broken")))
				p.Runtime.Set("late", "c=running")
			},
			took: 10 * time.Second, // then the list answers
		},
		"it is a sandbox whose inspection fails": {
			after: func(p *kit.Pipeline) {
				p.Runtime.SetPodFault("late", plegtest.Fail(errors.New("broken")))
				p.Runtime.Set("late", "of-it=running /c=running")
			},
			took: 10 * time.Second,
		},
		"there is none":             {after: func(*kit.Pipeline) {}, err: lookup.ErrNoContainer, took: 0},
		"the first list fails":      {after: func(p *kit.Pipeline) { failOnce(p.Runtime) }, err: lookup.ErrNoContainer, took: time.Second},
		"the runtime does not list": {after: func(p *kit.Pipeline) { p.Runtime.SetListFault(plegtest.Hang) }, err: lookup.ErrNotYet, took: 10 * time.Second},
		"the pipeline ends":         {after: func(p *kit.Pipeline) { _ = p.Stop() }, err: pleg.ErrStopped},
		"the pipeline ends later": {
			after: func(p *kit.Pipeline) {
				p.Runtime.SetPodFault("late", plegtest.Hang)
				p.Runtime.Set("late", "c=running")
				time.AfterFunc(3*time.Second, func() { _ = p.Stop() })
			},
			err: pleg.ErrStopped, took: 3 * time.Second,
		},
		"its context ends": {after: func(p *kit.Pipeline) { p.Runtime.SetListFault(plegtest.Hang) }, ends: time.Second, err: errStop, took: time.Second},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			p := kit.New(t, pipeline.Options{})
			p.StartBetweenLists(t)
			tc.after(p)
			began := time.Now()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tc.ends > 0 {
				time.AfterFunc(tc.ends, func() { cancel(errStop) })
			}
			q := container("c")
			q.Wait = 10 * time.Second
			if _, err := p.Lookup(ctx, q); !errors.Is(err, tc.err) {
				t.Errorf("Lookup = %v, want %v", err, tc.err)
			}
			if took := time.Since(began); took != tc.took {
				t.Errorf("it took %v, want %v", took, tc.took)
			}
		})
	}
}

// A container that hangs since the start must not hide the names in the list, neither its own
// nor those of the rest of its pod.
func TestLookupOfAPodThatIsNotInspected(t *testing.T) {
	for name, fault := range map[string]plegtest.Fault{"hangs": plegtest.Hang, "fails": plegtest.Fail(errors.New("broken"))} {
		kit.Bubble(t, name, func(t *testing.T) {
			p := kit.New(t, pipeline.Options{})
			p.Runtime.SetPodFault("shop/web", fault)
			p.Runtime.Set("shop/web", "nginx=running job=exited /sandbox=running")
			p.Runtime.Set("db", "postgres=running job2=exited:137:OOMKilled /d=running")
			p.StartBetweenLists(t)
			synctest.Wait()
			if _, err := p.Lookup(t.Context(), container("nginx")); name == "hangs" && !errors.Is(err, lookup.ErrNotYet) {
				t.Errorf("Lookup while the inspection may be about to end = %v, want %v", err, lookup.ErrNotYet)
			}
			if _, err := p.Lookup(t.Context(), container("nginx")); name == "fails" && err != nil {
				t.Errorf("Lookup once the inspection has failed = %v, want the facts of the list", err)
			}
			time.Sleep(time.Second)
			for id, want := range map[pleg.ContainerID]pleg.State{"nginx": pleg.StateRunning, "job": pleg.StateExited, "sandbox": pleg.StateRunning} {
				c, err := p.Lookup(t.Context(), container(id))
				if err != nil || c.ID != id || c.State != want || c.PodUID != "shop/web" || c.PodName != "name-shop/web" || c.PodLabels["pod"] != "web" || c.Sandbox != (id == "sandbox") {
					t.Errorf("Lookup of %s = %+v, %v", id, c, err)
				}
			}
			if c, err := p.Lookup(t.Context(), container("other")); !errors.Is(err, lookup.ErrNotYet) {
				t.Errorf("Lookup of what is not listed = %+v, %v", c, err)
			}

			p.Runtime.SetPodFault("db", fault) // the pod was inspected before
			p.Runtime.Set("db", "postgres=exited job2=exited:137:OOMKilled new=running /d=running")
			kit.Relist(3)
			if c, err := p.Lookup(t.Context(), container("new")); err != nil || c.PodUID != "db" {
				t.Errorf("Lookup of a new container = %+v, %v", c, err)
			}
			q := container("nginx")
			q.Wait = 5 * time.Second
			if c, err := p.Lookup(t.Context(), q); err != nil || c.PodUID != "shop/web" {
				t.Errorf("Lookup that waits = %+v, %v", c, err)
			}
			if c, err := p.Lookup(t.Context(), container("job2")); err != nil || c.PodUID != "db" || c.ExitCode != 137 || !c.RemovedAt.IsZero() {
				t.Errorf("Lookup of a container that was inspected = %+v, %v, want its last good status, not removed", c, err)
			}
			p.Runtime.Remove("shop/web")
			kit.Relist(1)
			if c, err := p.Lookup(t.Context(), container("nginx")); !errors.Is(err, lookup.ErrNotYet) {
				t.Errorf("Lookup after the removal = %+v, %v", c, err)
			}
		})
	}
}

func failOnce(rt *plegtest.Runtime) {
	calls := 0
	rt.SetListFault(func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("broken")
		}
		return nil
	})
}

// A subscriber that got the event of a start can look the container up, also if the first
// lookups build the index while pods change.
func TestLookupOfEachEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{RelistPeriod: time.Millisecond})
		events := p.Events(t, 10_000)
		p.Start(t)
		var lookups sync.WaitGroup
		for range 4 {
			lookups.Go(func() {
				for n := range 500 {
					_, _ = p.Lookup(t.Context(), container(pleg.ContainerID(fmt.Sprint("c", n))))
				}
			})
		}
		for n := range 500 {
			p.Runtime.Set(pleg.PodUID(fmt.Sprint("p", n)), fmt.Sprintf("c%d=running", n))
			if n >= 100 {
				p.Runtime.Remove(pleg.PodUID(fmt.Sprint("p", n-100)))
			}
			ev := <-events
			for ev.Type != pleg.ContainerStarted {
				ev = <-events
			}
			if c, err := p.Lookup(t.Context(), container(ev.ContainerID)); err != nil || c.PodUID != ev.PodUID {
				t.Fatalf("Lookup after %v = %+v, %v", ev, c, err)
			}
		}
		lookups.Wait()
	})
}
