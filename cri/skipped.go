package cri

import (
	"context"
	"log/slog"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxRemembered bounds the items whose warning is remembered: a runtime with new bad
// ids in each list must fill neither the memory nor the log.
const maxRemembered = 1000

// skipped counts the malformed items of a list, most of which are left out of it, and
// logs each once.
type skipped struct {
	log     *slog.Logger
	metrics *metrics
	warned  map[skippedItem]struct{}
}

type skippedItem struct {
	id     pleg.ContainerID
	reason reason
}

func newSkipped(log *slog.Logger, m *metrics) *skipped {
	return &skipped{log: log, metrics: m, warned: make(map[skippedItem]struct{})}
}

func (s *skipped) add(ctx context.Context, it *item, r reason) {
	s.metrics.malformed[r].Inc()
	key := skippedItem{it.ID, r}
	if _, ok := s.warned[key]; ok || len(s.warned) > maxRemembered {
		return
	}
	s.warned[key] = struct{}{}
	if len(s.warned) > maxRemembered {
		s.log.WarnContext(ctx, "malformed item limit reached; counting without logging")
		return
	}
	s.log.WarnContext(ctx, "malformed item in list",
		"containerID", it.ID, "podSandboxID", it.SandboxID, "name", it.Name, "reason", r.String())
}
