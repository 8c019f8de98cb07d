package conform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const exits = 12

// tryFinalExit compares the first EXITED of containers with what they say later.
func tryFinalExit(t *trial) result {
	kinds := []struct {
		want   string
		memory int64
		args   []string
	}{{"137 OOMKilled", 64 << 20, []string{"oom"}}, {"7 Error", 0, []string{"exit", "7", "0s"}}}
	p := t.runPod(nil)
	var first []*runtimeapi.ContainerStatus
	for i := range exits {
		first = append(first, t.runToEnd(p, kinds[i%2].memory, kinds[i%2].args...))
	}
	t.sleep(t.opts.Settle / 3)
	var wrong []string
	for i, before := range first {
		later := describeExit(must(t.status(t.ctx, before.GetId())))
		if want := kinds[i%2].want; describeExit(before) != later || later != want {
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
func tryExitDelay(t *trial) result {
	p := t.runPod(nil)
	var delays []time.Duration
	for range exits {
		st := t.runToEnd(p, 0, "exit", "0", "100ms")
		note := must(os.ReadFile(filepath.Join(t.program, noteName(p, st.GetMetadata().GetName()))))
		delays = append(delays, time.Since(must(time.Parse(time.RFC3339Nano, string(note)))))
	}
	slices.Sort(delays)
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	longest := delays[len(delays)-1]
	return judge(longest <= time.Second, "p50 %v, max %v of %d", round(delays[len(delays)/2]), round(longest), len(delays))
}

// tryExitWhileDown ends a container while the runtime does not run.
func tryExitWhileDown(t *trial) result {
	if t.opts.Stop == nil || t.opts.Start == nil {
		return result{NotTested, "needs --stop-runtime and --start-runtime"}
	}
	id := t.runContainer(t.runPod(nil), 0, "exit", "7", "3s")
	if err := t.opts.Stop(t.ctx); err != nil {
		check(fmt.Errorf("stop the runtime: %w", err))
	}
	wait := sleep(t.ctx, 4*time.Second)
	if err := errors.Join(wait, t.opts.Start(context.WithoutCancel(t.ctx))); err != nil {
		check(fmt.Errorf("start the runtime: %w", err))
	}
	var st *runtimeapi.ContainerStatus
	var err error
	if !until(t.ctx, 30*time.Second, 50*time.Millisecond, func() bool {
		st, err = t.status(t.ctx, id)
		return err == nil && st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	}) {
		return judge(false, "30 s after the start it is %v, %v", st.GetState(), err)
	}
	evidence := fmt.Sprintf("exit code %d, %s", st.GetExitCode(), st.GetReason())
	if st.GetExitCode() != 7 {
		evidence += "; it was 7"
	}
	return judge(st.GetExitCode() == 7, "%s", evidence)
}
