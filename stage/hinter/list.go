package hinter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/conc/panics"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// list lists one pod, on a worker. An observation without a time means that it
// failed: the list of all pods that it then asks for makes it good.
func (h *Hinter) list(ctx context.Context, uid pleg.PodUID) stage.Observation {
	callCtx, cancel := context.WithTimeoutCause(ctx, h.opts.ListTimeout, fmt.Errorf("no answer within the list timeout of %v", h.opts.ListTimeout))
	defer cancel()
	o := stage.Observation{UID: uid, At: time.Now()}
	var err error
	// The runtime may be the embedder's: its panic costs this relist only.
	if caught := panics.Try(func() { o.Pod, err = h.opts.Pods.ListPod(callCtx, uid) }); caught != nil {
		h.log.ErrorContext(ctx, "the runtime panicked in ListPod", "podUID", uid, "err", caught.AsError())
		err = fmt.Errorf("panic: %v", caught.Value)
	}
	if err == nil && o.Pod != nil && !wellFormed(o.Pod, uid) {
		err = errors.New("the runtime returned another pod, or one with a nil container or sandbox")
	}
	h.metrics.duration.Observe(time.Since(o.At).Seconds())
	if err != nil && ctx.Err() == nil {
		h.metrics.errors.Inc()
		h.log.WarnContext(ctx, "relist of one pod failed, all are relisted instead", "podUID", uid, "err", err)
		h.opts.Lister.Relist()
	}
	if err != nil {
		o.At = time.Time{}
	}
	return o
}
