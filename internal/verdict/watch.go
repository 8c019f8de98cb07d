package verdict

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// watchPeriod is the time between two looks at the status.
const watchPeriod = time.Second

// Watch looks at the status of a pipeline once a second until ctx ends, and returns its cause. It
// logs each trouble once when it begins and once when it ends.
func Watch(ctx context.Context, status func() pleg.Status, log *slog.Logger) error {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	told := make(map[trouble]Finding)
	for {
		select {
		case <-ticker.C:
			tell(ctx, status(), told, log)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// trouble is a cause and the first pod of the finding, if the finding is about pods.
type trouble struct {
	cause Cause
	pod   pleg.PodUID
}

// mostLogged is the number of pods of one trouble that are logged.
const mostLogged = 10

// ofEachPod returns the findings. A finding about several pods is followed by one finding for each
// of its other pods.
func ofEachPod(s pleg.Status) (all []Finding) {
	pods := slices.SortedFunc(maps.Values(Pods(s)), func(a, b Finding) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod, b.Pod)) })
	for _, f := range Of(s).Findings {
		all = append(all, f)
		if f.Pods < 2 || !strings.HasPrefix(f.Subject, f.Pod) {
			continue
		}
		logged := 1
		for _, other := range pods {
			if other.Cause == f.Cause && other.PodUID != f.PodUID && s.At.Sub(other.Since) >= DefaultLimits.Warning && logged < mostLogged {
				all = append(all, other)
				logged++
			}
		}
	}
	return all
}

// tell logs the troubles that began and those that ended. It logs a warning only at the age of a
// problem, because most warnings become problems by then.
func tell(ctx context.Context, s pleg.Status, told map[trouble]Finding, log *slog.Logger) {
	now := make(map[trouble]bool)
	for _, f := range ofEachPod(s) {
		t := trouble{cause: f.Cause}
		if strings.HasPrefix(f.Subject, f.Pod) {
			t.pod = f.PodUID
		}
		now[t] = true
		if _, already := told[t]; already || f.Severity != Problem && s.At.Sub(f.Since) < DefaultLimits.Problem {
			continue
		}
		told[t] = f
		log.WarnContext(ctx, "trouble begins", "severity", f.Severity, "cause", f.Cause, "since", f.Since, "what", f.lasting(), "do", f.Advice)
	}
	for t, f := range told {
		if !now[t] {
			delete(told, t)
			log.InfoContext(ctx, "trouble ended", "cause", t.cause, "what", f.lasting(), "after", s.At.Sub(f.Since).Round(time.Millisecond))
		}
	}
}
