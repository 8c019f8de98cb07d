package model_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A script has the answers of a runtime, list by list.
type script []scriptStep

type scriptStep struct {
	// requests are the reinspections requested before the list.
	requests []pleg.PodUID
	pods     []*pleg.Pod
	works    bool // the list does
	fault    plegtest.Fault
	delay    time.Duration
	answers  map[pleg.PodUID]answer
}

// answer is the answer to one inspection.
type answer struct {
	status *pleg.PodStatus
	fault  plegtest.Fault
	delay  time.Duration
	// request: a reinspection is requested while this inspection runs.
	request bool
}

const (
	scriptPods  = 5
	scriptSteps = 14
)

// newScript returns the script of a seed. Two calls return equal scripts that share no memory, except
// that the reference does not contain panics, so it gets an error instead.
func newScript(seed uint64, contained bool) script {
	rng := rand.New(rand.NewPCG(seed, 1))
	steps := make(script, scriptSteps)
	listed := make(map[pleg.PodUID]*pleg.Pod)
	words := make(map[pleg.PodUID]string)
	for i := range steps {
		s := &steps[i]
		s.answers = make(map[pleg.PodUID]answer)
		s.fault, s.works = newFault(rng, 85, contained)
		s.delay = time.Duration(rng.IntN(100)) * time.Millisecond
		for _, uid := range kit.UIDs(scriptPods) {
			if rng.IntN(8) == 0 {
				s.requests = append(s.requests, uid)
			}
			change := rng.IntN(6)
			if change > 1 {
				words[uid] = newWords(rng, words[uid])
			}
			if change > 0 { // otherwise the list has the same pointer
				listed[uid] = plegtest.Pod(uid, words[uid])
			}
			if words[uid] != "" {
				s.pods, s.answers[uid] = append(s.pods, listed[uid]), newAnswer(rng, listed[uid], contained)
			}
		}
		rng.Shuffle(len(s.pods), func(a, b int) { s.pods[a], s.pods[b] = s.pods[b], s.pods[a] })
	}
	return steps
}

// newFault returns a fault that lets a percentage of the calls work.
func newFault(rng *rand.Rand, percent int, contained bool) (f plegtest.Fault, works bool) {
	switch roll := rng.IntN(100); {
	case roll < percent:
		return func(context.Context) error { return nil }, true
	case roll%3 == 0 && contained:
		return plegtest.Panic("scripted panic"), false
	case roll%3 == 0:
		return plegtest.Fail(errPanicked), false
	case roll%3 == 1:
		return plegtest.Hang, false
	}
	return plegtest.Fail(errScripted), false
}

// newWords returns the next state of a pod: one that is not there gets a sandbox. Its containers and
// sandboxes change also in ways that those of a real pod do not: they go back in their life, and come back.
func newWords(rng *rand.Rand, before string) string {
	if before == "" {
		return "/s=running"
	}
	if rng.IntN(10) == 0 {
		return ""
	}
	ids, states := []string{"a", "b", "c", "/s", "/t"}, []string{"running", "exited", "created", "unknown"}
	rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var words []string
	for _, id := range ids[:1+rng.IntN(len(ids))] {
		of := states
		if strings.HasPrefix(id, "/") {
			of = states[:2]
		}
		words = append(words, id+"="+of[rng.IntN(len(of))])
	}
	return strings.Join(words, " ")
}

// newAnswer returns the answer to an inspection of a pod: what was listed, sometimes without a container that
// is gone meanwhile, or with one that has exited.
func newAnswer(rng *rand.Rand, pod *pleg.Pod, contained bool) answer {
	a := answer{delay: time.Duration(rng.IntN(300)) * time.Millisecond, request: rng.IntN(12) == 0, status: plegtest.Status(pod)}
	a.fault, _ = newFault(rng, 75, contained)
	a.status.Containers = slices.DeleteFunc(a.status.Containers, func(*pleg.ContainerStatus) bool { return rng.IntN(10) == 0 })
	for _, c := range a.status.Containers {
		if rng.IntN(10) == 0 {
			c.State = pleg.StateExited
		}
		c.Image, c.StartedAt = fmt.Sprintf("image:%d", rng.IntN(3)), time.Unix(rng.Int64N(256), 0)
		if c.State == pleg.StateExited {
			c.ExitCode, c.FinishedAt = rng.Int32N(256), c.StartedAt.Add(time.Minute)
		}
	}
	if lost := rng.IntN(5) == 0; a.status.SandboxReady() != lost {
		a.status.IPs = []string{fmt.Sprintf("10.0.0.%d", rng.IntN(256))}
	}
	return a
}
