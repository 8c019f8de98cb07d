package schedule

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// streamBatch makes streamed lists of a few pods more than one message, so that
// they can be truncated.
const streamBatch = 10

// Runtime returns a runtime with the pods that are there at first. Seed, Profile
// and StreamBatch of the options are the schedule's.
func (s *Schedule) Runtime(o simruntime.Options) (*simruntime.Runtime, error) {
	profile, err := simruntime.NewProfile(s.profile())
	if err != nil {
		return nil, err
	}
	o.Seed, o.Profile, o.StreamBatch = s.Seed, profile, streamBatch
	rt, err := simruntime.New(o)
	if err != nil {
		return nil, err
	}
	rt.Update(func(tx *simruntime.Txn) {
		for _, p := range s.Pods {
			if _, err = tx.AddPod(podSpec(p.Name, s.uid(p.Name, 1), p.Containers)); err != nil {
				return
			}
		}
	})
	return rt, err
}

// PlayOptions configure [Schedule.Play]. The zero value is usable.
type PlayOptions struct {
	// WaitForCall starts the clock when the runtime gets its first call. Faults
	// without From hold before that.
	WaitForCall bool
	// Observe, if set, is called after each step by the goroutine of Play, which
	// waits for it.
	Observe func(Step)
}

// Played is what Play has done.
type Played struct {
	Steps int
	// PassedOver are the steps and faults whose pod or container was not there,
	// as in a file that was edited, or was in another state.
	PassedOver int
	// Panics are the faults of that kind, which are left to the client.
	Panics int
}

// Play plays the schedule on a runtime made by [Schedule.Runtime], until its end
// (nil) or that of ctx (context.Cause). Then no fault of it is in force.
//
// A fault of GetContainerEvents breaks the open streams when it begins and when
// it is lifted, as it is about streams that are opened.
func (s *Schedule) Play(ctx context.Context, rt *simruntime.Runtime, o PlayOptions) (Played, error) {
	p := &player{rt: rt, observe: o.Observe, faults: make(map[int]simruntime.FaultID)}
	timeline, err := p.timeline(s)
	if err != nil {
		return Played{}, fmt.Errorf("play schedule: %w", err)
	}
	defer p.liftAll(s)
	for len(timeline) > 0 && timeline[0].at == 0 && timeline[0].fault {
		timeline[0].do()
		timeline = timeline[1:]
	}
	if o.WaitForCall {
		select {
		case <-rt.Called():
		case <-ctx.Done():
			return p.played, context.Cause(ctx)
		}
	}
	start := time.Now()
	for _, m := range timeline {
		if err := sleep(ctx, time.Until(start.Add(time.Duration(m.at)))); err != nil {
			return p.played, err
		}
		m.do()
	}
	return p.played, nil
}

// player is the state of one Play; only its goroutine uses it.
type player struct {
	rt      *simruntime.Runtime
	observe func(Step)
	faults  map[int]simruntime.FaultID // in force, by their number
	played  Played
}

// moment is one thing to be done.
type moment struct {
	at    Time
	fault bool // that begins
	do    func()
}

// timeline returns everything that is to be done, in order: at one time, faults
// begin first and are lifted last.
func (p *player) timeline(s *Schedule) ([]moment, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var begin, steps, lift []moment
	for i, f := range s.Faults {
		if f.Kind == Panic {
			p.played.Panics++
			continue
		}
		begin = append(begin, moment{f.From, true, func() { p.inject(s, i) }})
		lift = append(lift, moment{cmp.Or(f.Until, Time(s.End())), false, func() { p.lift(s, i) }})
	}
	pods := make(map[string]int) // by name: it may be used again
	for _, pod := range s.Pods {
		pods[pod.Name] = 1
	}
	for _, step := range s.Steps {
		if step.Do == simruntime.ActionAdd {
			pods[step.Pod]++
		}
		uid := s.uid(step.Pod, pods[step.Pod])
		steps = append(steps, moment{step.At, false, func() { p.step(step, uid) }})
	}
	all := slices.Concat(begin, steps, lift)
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return all, nil
}

func (p *player) inject(s *Schedule, i int) {
	f := s.Faults[i]
	uid := ""
	if f.Pod != "" {
		var ok bool
		if uid, ok = p.find(f.Pod); !ok {
			p.played.PassedOver++
			return
		}
	}
	id, err := p.rt.Inject(f.rule(uid))
	if err != nil {
		p.played.PassedOver++
		return
	}
	p.faults[i] = id
	p.breakEvents(f)
}

func (p *player) lift(s *Schedule, i int) {
	id, ok := p.faults[i]
	if !ok {
		return
	}
	delete(p.faults, i)
	p.rt.Clear(id)
	p.breakEvents(s.Faults[i])
}

func (p *player) liftAll(s *Schedule) {
	for i := range s.Faults {
		p.lift(s, i)
	}
}

func (p *player) breakEvents(f Fault) {
	if f.Call == "GetContainerEvents" {
		p.rt.BreakEvents()
	}
}

// find returns the UID of the pod that has the name now.
func (p *player) find(name string) (string, bool) {
	for _, pod := range p.rt.Pods() {
		if pod.Namespace+"/"+pod.Name == name {
			return pod.UID, true
		}
	}
	return "", false
}

func (p *player) step(step Step, uid string) {
	var err error
	p.rt.Update(func(tx *simruntime.Txn) { err = step.do(tx, uid) })
	p.played.Steps++
	if err != nil {
		p.played.PassedOver++
	}
	if p.observe != nil {
		p.observe(step)
	}
}

var errNoContainer = errors.New("the pod has no such container")

func (s Step) do(tx *simruntime.Txn, uid string) error {
	switch s.Do {
	case simruntime.ActionAdd:
		_, err := tx.AddPod(podSpec(s.Pod, uid, s.Containers))
		return err
	case simruntime.ActionDelete:
		return tx.StopPod(uid)
	case simruntime.ActionRemove:
		return tx.RemovePod(uid)
	}
	pod, _ := tx.Pod(uid)
	// Newest first: the one of the last attempt counts.
	i := slices.IndexFunc(pod.Containers, func(c simruntime.Container) bool { return c.Name == s.Container })
	if i < 0 {
		return errNoContainer
	}
	if s.Do != simruntime.ActionRestart {
		return tx.ExitContainer(pod.Containers[i].ID, s.ExitCode, s.Reason)
	}
	if _, err := tx.RestartContainer(pod.Containers[i].ID); err != nil {
		return err
	}
	return tx.PruneDead(uid)
}

func podSpec(name, uid string, containers []string) simruntime.PodSpec {
	namespace, pod, _ := strings.Cut(name, "/")
	spec := simruntime.PodSpec{UID: uid, Namespace: namespace, Name: pod}
	for _, c := range containers {
		spec.Containers = append(spec.Containers, simruntime.ContainerSpec{Name: c})
	}
	return spec
}

// uid makes the UID of the n-th pod of a name. It does not depend on other pods:
// a file may be cut down until only what matters is left.
func (s *Schedule) uid(name string, n int) string {
	b := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", s.Seed, n, name))
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a version 4 UUID
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
