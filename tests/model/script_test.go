package model_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A script has the answers of a runtime, list by list.
type script []scriptStep

type scriptStep struct {
	// requests are the reinspections requested before the list.
	requests []pleg.PodUID
	pods     []*pleg.Pod
	fault    fault
	delay    time.Duration
	answers  map[pleg.PodUID]answer
}

// answer is the answer to one inspection.
type answer struct {
	status *pleg.PodStatus
	fault  fault
	delay  time.Duration
	// request: a reinspection is requested while this inspection runs.
	request bool
}

const (
	scriptPods  = 5
	scriptSteps = 14
)

// newScript returns the script of a seed. Two calls return equal scripts that share no
// memory.
func newScript(seed uint64) script {
	rng := rand.New(rand.NewPCG(seed, 1))
	var pods []*scriptedPod
	for _, uid := range kit.UIDs(scriptPods) {
		pods = append(pods, &scriptedPod{rng: rng, uid: uid})
	}
	steps := make(script, scriptSteps)
	for i := range steps {
		s := &steps[i]
		s.answers = make(map[pleg.PodUID]answer)
		s.fault = oneOf(rng, 85, works, 5, fails, 5, panics, 5, hangs)
		s.delay = time.Duration(rng.IntN(100)) * time.Millisecond
		for _, pod := range pods {
			if rng.IntN(8) == 0 {
				s.requests = append(s.requests, pod.uid)
			}
			for range rng.IntN(4) {
				pod.step()
			}
			if listed := pod.list(); listed != nil {
				s.pods = append(s.pods, listed)
				s.answers[pod.uid] = newAnswer(rng, listed)
			}
		}
		rng.Shuffle(len(s.pods), func(a, b int) { s.pods[a], s.pods[b] = s.pods[b], s.pods[a] })
	}
	return steps
}

// oneOf returns a random fault; percents alternates between a percentage and a fault.
func oneOf(rng *rand.Rand, percents ...any) fault {
	roll := rng.IntN(100)
	for i := 0; i < len(percents); i += 2 {
		if roll -= percents[i].(int); roll < 0 {
			return percents[i+1].(fault)
		}
	}
	return works
}

// scriptedPod is a pod that changes at random, also in ways that a real pod does not.
type scriptedPod struct {
	rng                            *rand.Rand
	uid                            pleg.PodUID
	ids                            int
	containers, sandboxes, removed []pleg.Container

	listed  *pleg.Pod
	changed bool
}

func (p *scriptedPod) add(list *[]pleg.Container, name string, attempt uint32, state pleg.State) {
	id := pleg.ContainerID(fmt.Sprintf("%s-%d", p.uid, p.ids))
	p.ids++
	*list = slices.Insert(*list, 0, pleg.Container{ID: id, Name: name, Attempt: attempt, State: state})
}

func (p *scriptedPod) state() pleg.State { return pleg.State(p.rng.IntN(4)) }

func (p *scriptedPod) step() {
	p.changed = true
	if len(p.containers)+len(p.sandboxes) == 0 {
		p.add(&p.sandboxes, "pod", 0, pleg.StateRunning)
		for i := range p.rng.IntN(3) {
			p.add(&p.containers, fmt.Sprintf("c%d", i), 0, p.state())
		}
		return
	}
	switch roll := p.rng.IntN(20); {
	case roll < 2:
		p.containers, p.sandboxes = nil, nil
	case roll < 4:
		p.add(&p.containers, fmt.Sprintf("c%d", p.ids), 0, p.state())
	case roll < 6:
		p.add(&p.sandboxes, "pod", uint32(len(p.sandboxes)), pleg.StateRunning)
	case roll < 8 && len(p.sandboxes) > 0:
		s := &p.sandboxes[p.rng.IntN(len(p.sandboxes))]
		s.State = pleg.StateRunning + pleg.StateExited - s.State
	case roll < 9 && len(p.sandboxes) > 0:
		p.sandboxes = p.drop(p.sandboxes)
	case roll < 10 && len(p.removed) > 0:
		back := p.removed[p.rng.IntN(len(p.removed))]
		p.removed, back.State = nil, p.state()
		p.containers = append(p.containers, back)
	case len(p.containers) > 0:
		p.stepContainer(roll, p.rng.IntN(len(p.containers)))
	}
}

func (p *scriptedPod) stepContainer(roll, i int) {
	c := &p.containers[i]
	switch {
	case roll < 13: // restarted
		c.State = pleg.StateExited
		p.add(&p.containers, c.Name, c.Attempt+1, pleg.StateRunning)
	case roll < 15:
		p.removed = append(p.removed, *c)
		p.containers = slices.Delete(p.containers, i, i+1)
	case roll < 16:
		p.containers[0], p.containers[i] = p.containers[i], p.containers[0]
	default:
		c.State = p.state()
	}
}

func (p *scriptedPod) drop(list []pleg.Container) []pleg.Container {
	i := p.rng.IntN(len(list))
	return slices.Delete(list, i, i+1)
}

// list returns the pod as a runtime lists it, or nil if it does not exist. If nothing
// changed, it is sometimes the same pointer.
func (p *scriptedPod) list() *pleg.Pod {
	if len(p.containers)+len(p.sandboxes) == 0 {
		p.listed = nil
		return nil
	}
	if p.listed == nil || p.changed || p.rng.IntN(3) == 0 {
		p.listed = newPod(p.uid, p.containers, p.sandboxes)
	}
	p.changed = false
	return p.listed
}

func newPod(uid pleg.PodUID, containers, sandboxes []pleg.Container) *pleg.Pod {
	pod := &pleg.Pod{UID: uid, Name: "name-of-" + string(uid), Namespace: "default"}
	for _, c := range containers {
		pod.Containers = append(pod.Containers, &c)
	}
	for _, s := range sandboxes {
		pod.Sandboxes = append(pod.Sandboxes, &s)
	}
	return pod
}

// newAnswer returns the answer to an inspection of the pod, as it was listed: a status that
// contradicts its list is asked for again, which the reference does not do.
func newAnswer(rng *rand.Rand, pod *pleg.Pod) answer {
	a := answer{
		fault:   oneOf(rng, 75, works, 15, fails, 5, panics, 5, hangs),
		delay:   time.Duration(rng.IntN(300)) * time.Millisecond,
		request: rng.IntN(12) == 0,
		status:  &pleg.PodStatus{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace},
	}
	for _, c := range pod.Containers {
		a.status.Containers = append(a.status.Containers, containerStatus(c, c.State, rng.Int32N(256)))
	}
	for _, s := range pod.Sandboxes {
		a.status.Sandboxes = append(a.status.Sandboxes, &pleg.SandboxStatus{
			ID: s.ID, Attempt: s.Attempt, Ready: s.State == pleg.StateRunning,
		})
	}
	if lost := rng.IntN(5) == 0; a.status.SandboxReady() != lost {
		a.status.IPs = []string{fmt.Sprintf("10.0.0.%d", rng.IntN(256))}
	}
	return a
}

func containerStatus(c *pleg.Container, state pleg.State, code int32) *pleg.ContainerStatus {
	s := &pleg.ContainerStatus{
		ID: c.ID, Name: c.Name, Attempt: c.Attempt, State: state, ExitCode: code,
		Image: fmt.Sprintf("image:%d", c.Attempt), StartedAt: time.Unix(int64(code), 0),
	}
	if state == pleg.StateExited {
		s.Reason, s.FinishedAt = fmt.Sprintf("Reason%d", code%3), s.StartedAt.Add(time.Minute)
	}
	return s
}
