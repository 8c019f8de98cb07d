package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const exits = 6

// tryFinalExit compares the first EXITED of containers with what they say later.
func tryFinalExit(ctx context.Context, s *suite, p *pod) (string, error) {
	kinds := []struct {
		want   string
		memory int64
		args   []string
	}{{"137 OOMKilled", 64 << 20, []string{"oom"}}, {"7 Error", 0, []string{"exit", "7", "0s"}}}
	var first []*runtimeapi.ContainerStatus
	for i := range 2 * exits {
		kind := kinds[i%2]
		st, err := s.node.runToEnd(ctx, p, kind.memory, kind.args...)
		if err != nil {
			return "", err
		}
		first = append(first, st)
	}
	if err := sleep(ctx, s.opts.Settle/3); err != nil {
		return "", err
	}
	var wrong []string
	for i, before := range first {
		st, err := s.node.status(ctx, before.GetId())
		if err != nil {
			return "", err
		}
		if later, want := describeExit(st), kinds[i%2].want; describeExit(before) != later || later != want {
			wrong = append(wrong, fmt.Sprintf("%s, then %s, want %s", describeExit(before), later, want))
		}
	}
	if len(wrong) > 0 {
		return judge(false, "%d of %d wrong: %s", len(wrong), len(first), wrong[0])
	}
	return judge(true, "%d exits, half of them out of memory", len(first))
}

func describeExit(st *runtimeapi.ContainerStatus) string {
	return fmt.Sprint(st.GetExitCode(), " ", st.GetReason())
}

// tryExitDelay compares the time that a container writes just before it ends with the
// first EXITED.
func tryExitDelay(ctx context.Context, s *suite, p *pod) (string, error) {
	var delays []time.Duration
	for i := range 2 * exits {
		name := fmt.Sprintf("%s-delay-%d", p.uid, i)
		if _, err := s.node.runToEnd(ctx, p, 0, "note", name, "100ms"); err != nil {
			return "", err
		}
		shown := time.Now()
		ended, err := s.node.program.exitedAt(name)
		if err != nil {
			return "", err
		}
		delays = append(delays, shown.Sub(ended))
	}
	slices.Sort(delays)
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	longest := delays[len(delays)-1]
	return judge(longest <= time.Second, "p50 %v, max %v of %d", round(delays[len(delays)/2]), round(longest), len(delays))
}

// tryExitWhileDown ends a container while the runtime does not run.
func tryExitWhileDown(ctx context.Context, s *suite, _ *pod) (string, error) {
	if s.opts.Stop == nil || s.opts.Start == nil {
		return "needs --stop-runtime and --start-runtime", errNotTested
	}
	p, err := s.node.runPod(ctx, nil)
	if err != nil {
		return "", err
	}
	id, err := s.node.runContainer(ctx, p, 0, "exit", "7", "3s")
	if err != nil {
		return "", err
	}
	if err := s.opts.Stop(ctx); err != nil {
		return "", fmt.Errorf("stop the runtime: %w", err)
	}
	wait := sleep(ctx, 4*time.Second)
	if err := errors.Join(wait, s.opts.Start(context.WithoutCancel(ctx))); err != nil {
		return "", fmt.Errorf("start the runtime: %w", err)
	}
	var st *runtimeapi.ContainerStatus
	if until(ctx, 30*time.Second, 50*time.Millisecond, func() (bool, error) {
		st, err = s.node.status(ctx, id)
		return err == nil && st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, nil
	}) != nil {
		return judge(false, "30 s after the start it is %v, %v", st.GetState(), err)
	}
	evidence := fmt.Sprintf("exit code %d, %s", st.GetExitCode(), st.GetReason())
	if st.GetExitCode() != 7 {
		return judge(false, "%s; it was 7", evidence)
	}
	return evidence, nil
}
