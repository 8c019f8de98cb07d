package verdict

import (
	"context"
	"log/slog"
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
	told := make(map[Cause]Finding)
	for {
		select {
		case <-ticker.C:
			tell(ctx, status(), told, log)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell logs what has begun and what has ended. A warning begins once it is as old as a problem is,
// because most become problems by then.
func tell(ctx context.Context, s pleg.Status, told map[Cause]Finding, log *slog.Logger) {
	now := make(map[Cause]bool)
	for _, f := range Of(s).Findings {
		now[f.Cause] = true
		if _, already := told[f.Cause]; already || f.Severity != Problem && s.At.Sub(f.Since) < DefaultLimits.Problem {
			continue
		}
		told[f.Cause] = f
		log.WarnContext(ctx, "trouble begins", "severity", f.Severity, "cause", f.Cause, "since", f.Since, "what", f.lasting(), "do", f.Advice)
	}
	for cause, f := range told {
		if !now[cause] {
			delete(told, cause)
			log.InfoContext(ctx, "trouble ended", "cause", cause, "what", f.lasting(), "after", s.At.Sub(f.Since).Round(time.Millisecond))
		}
	}
}
