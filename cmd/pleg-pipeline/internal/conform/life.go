package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// lives is the scenario that most promises about events are judged by: some pods live
// at the same time while two clients watch.
type lives struct {
	pods          []*pod
	first, second []received
	err           error
}

const (
	livingPods    = 6
	containerRuns = 3
)

// watched runs the scenario once.
func (s *suite) watched(ctx context.Context) (*lives, error) {
	if err := s.offersEvents(ctx); err != nil {
		return nil, err
	}
	if s.lives == nil {
		s.lives = &lives{}
		s.lives.err = s.live(ctx, s.lives)
	}
	return s.lives, s.lives.err
}

func (s *suite) live(ctx context.Context, l *lives) error {
	first, err := s.node.watch(ctx, true)
	if err != nil {
		return err
	}
	defer first.close()
	second, err := s.node.watch(ctx, false)
	if err != nil {
		return err
	}
	defer second.close()
	if err := s.listening(ctx, first, second); err != nil {
		return err
	}
	l.pods = make([]*pod, livingPods)
	g, gctx := errgroup.WithContext(ctx)
	for i := range l.pods {
		g.Go(func() (err error) {
			l.pods[i], err = s.node.life(gctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	err = s.settle(ctx, l.pods, first, second)
	l.first, l.second = first.of(l.pods...), second.of(l.pods...)
	return err
}

// life runs a pod and its containers to the end, one after the other.
func (n *node) life(ctx context.Context) (*pod, error) {
	p, err := n.runPod(ctx, nil)
	if err != nil {
		return nil, err
	}
	for i := range containerRuns {
		// It lives long enough for the runtime to see it run.
		id, err := n.runContainer(ctx, p, 0, "note", fmt.Sprint(p.uid, i), "200ms")
		if err != nil {
			return nil, err
		}
		if _, err := n.awaitExit(ctx, p, id); err != nil {
			return nil, err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil { // a removal may overtake the event of the end
			return nil, err
		}
		if err := n.removeContainer(ctx, p, id); err != nil {
			return nil, err
		}
	}
	return p, n.removePod(ctx, p)
}

func tryContainerEvents(ctx context.Context, s *suite) (string, error) {
	return s.tryAnnounced(ctx, false)
}

func trySandboxEvents(ctx context.Context, s *suite) (string, error) {
	return s.tryAnnounced(ctx, true)
}

var errBroken = errors.New("broken")

// tryAnnounced looks for each step in the events of both clients.
func (s *suite) tryAnnounced(ctx context.Context, sandbox bool) (string, error) {
	l, err := s.watched(ctx)
	if err != nil {
		return "", err
	}
	missing, total := make(map[string]int), make(map[string]int)
	var kinds []string
	for _, p := range l.pods {
		for _, want := range p.steps {
			if want.sandbox != sandbox {
				continue
			}
			kind := describe(want)
			if total[kind]++; total[kind] == 1 {
				kinds = append(kinds, kind)
			}
			if !contains(l.first, want) && !contains(l.second, want) {
				missing[kind]++
			}
		}
	}
	var lines []string
	for _, kind := range kinds {
		if missing[kind] > 0 {
			lines = append(lines, count(missing[kind], total[kind], kind+" missing"))
		}
	}
	if len(lines) > 0 {
		return strings.Join(lines, ", "), errBroken
	}
	return fmt.Sprintf("%d of each", total[kinds[0]]), nil
}

func contains(events []received, want step) bool {
	return slices.ContainsFunc(events, func(r received) bool { return r.step() == want })
}

// tryOrder: of two steps of a pod of which one was made before the other, the events
// come in that order. The steps of different containers are one after the other too.
func tryOrder(ctx context.Context, s *suite) (string, error) {
	return s.tryClients(ctx, "events out of order", func(pods []*pod, events []received) (wrong []string) {
		for _, p := range pods {
			last := -1
			for _, e := range events {
				i := slices.Index(p.steps, e.step())
				if i >= 0 && i < last {
					wrong = append(wrong, fmt.Sprintf("%s after %s", describe(p.steps[i]), describe(p.steps[last])))
				}
				last = max(last, i)
			}
		}
		return wrong
	})
}

func tryOnce(ctx context.Context, s *suite) (string, error) {
	return s.tryClients(ctx, "events repeated", func(_ []*pod, events []received) (wrong []string) {
		seen := make(map[step]bool)
		for _, e := range events {
			if seen[e.step()] {
				wrong = append(wrong, describe(e.step()))
			}
			seen[e.step()] = true
		}
		return wrong
	})
}

// tryClients returns how many events are wrong, of the client that reads and of the
// other one.
func (s *suite) tryClients(ctx context.Context, what string, judge func([]*pod, []received) (wrong []string)) (string, error) {
	l, err := s.watched(ctx)
	if err != nil {
		return "", err
	}
	wrong := slices.Concat(judge(l.pods, l.first), judge(l.pods, l.second))
	if len(wrong) > 0 {
		return count(len(wrong), len(l.first)+len(l.second), what+": "+wrong[len(wrong)-1]), errBroken
	}
	return fmt.Sprintf("%d events", len(l.first)), nil
}

func tryEveryClient(ctx context.Context, s *suite) (string, error) {
	l, err := s.watched(ctx)
	if err != nil {
		return "", err
	}
	all := make(map[step]bool)
	for _, e := range slices.Concat(l.first, l.second) {
		all[e.step()] = true
	}
	if len(all) == 0 {
		return "no events at all", errBroken
	}
	for _, events := range [][]received{l.first, l.second} {
		if len(events) < len(all) {
			return fmt.Sprintf("of %d events one client got %d and the other %d", len(all), len(l.first), len(l.second)), errBroken
		}
	}
	return fmt.Sprintf("both got %d", len(all)), nil
}

func tryComplete(ctx context.Context, s *suite) (string, error) {
	return s.tryEach(ctx, "without all statuses", func(e received) string {
		sandbox := e.GetPodSandboxStatus()
		if sandbox.GetMetadata() == nil || sandbox.GetId() == "" {
			return describe(e.step()) + " has no sandbox status"
		}
		ids := make(map[string]bool)
		for _, c := range e.GetContainersStatuses() {
			ids[c.GetId()] = true
		}
		if step := e.step(); !step.sandbox && step.kind != deleted && !ids[step.id] {
			return describe(step) + " lacks its own container"
		}
		if ids[""] {
			return describe(e.step()) + " has an empty container status"
		}
		return ""
	})
}

func tryAgree(ctx context.Context, s *suite) (string, error) {
	return s.tryEach(ctx, "disagree", func(e received) string {
		if e.step().sandbox {
			if e.GetPodSandboxStatus() == nil {
				return "" // not complete, which is another promise
			}
			ready := e.GetPodSandboxStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
			if kind := e.GetContainerEventType(); kind == started && !ready || (kind == stopped || kind == deleted) && ready {
				return fmt.Sprintf("%s with ready %v", describe(e.step()), ready)
			}
			return ""
		}
		want, ok := map[runtimeapi.ContainerEventType]runtimeapi.ContainerState{
			started: runtimeapi.ContainerState_CONTAINER_RUNNING, stopped: runtimeapi.ContainerState_CONTAINER_EXITED,
		}[e.GetContainerEventType()]
		for _, c := range e.GetContainersStatuses() {
			if ok && c.GetId() == e.GetContainerId() && c.GetState() != want {
				return fmt.Sprintf("%s with state %s", describe(e.step()), c.GetState())
			}
		}
		return ""
	})
}

func tryReadAfter(ctx context.Context, s *suite) (string, error) {
	return s.tryEach(ctx, "disagree", func(e received) string { return e.read })
}

// tryEach returns how many events of the client that reads are wrong.
func (s *suite) tryEach(ctx context.Context, what string, wrong func(received) string) (string, error) {
	l, err := s.watched(ctx)
	if err != nil {
		return "", err
	}
	n, example := 0, ""
	for _, e := range l.first {
		if text := wrong(e); text != "" {
			n++
			example = text
		}
	}
	if n > 0 {
		return count(n, len(l.first), "events "+what+": "+example), errBroken
	}
	return fmt.Sprintf("%d events", len(l.first)), nil
}

func tryCreatedAt(ctx context.Context, s *suite) (string, error) {
	l, err := s.watched(ctx)
	if err != nil {
		return "", err
	}
	newest, back := make(map[string]int64), 0
	for _, e := range l.first {
		uid := podOf(e, l.pods)
		if e.GetCreatedAt() < newest[uid] || e.GetCreatedAt() <= 0 {
			back++
		}
		newest[uid] = max(newest[uid], e.GetCreatedAt())
	}
	if back > 0 {
		return count(back, len(l.first), "events go back"), errBroken
	}
	return fmt.Sprintf("%d events", len(l.first)), nil
}
