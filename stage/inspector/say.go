package inspector

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// sayWait is the longest wait for an event that a list has overtaken, in ticks. No tick comes while this
// process is stopped. A process that gets 2 % of a CPU reads the event up to a second later than the
// list.
const (
	sayWait  = 2 * time.Second
	sayTicks = 20
)

// unsaid is a change that is in the cache and not in the log yet.
type unsaid struct {
	outcome stage.Outcome // the events are not filled yet
	network []pleg.Event
	// The events are filled from status and last; both may be nil.
	status, last *pleg.PodStatus
	settled      stage.Settled
}

// sayWhenKnown publishes a change. If it reports the end of a removed container, and an event that is
// still to come may contain the exit code, a worker waits for that event first.
func (i *Inspector) sayWhenKnown(ctx context.Context, u unsaid, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	var ended []pleg.ContainerID
	for _, ev := range u.outcome.Events {
		removed := ev.Type == pleg.ContainerDied && !ev.Sandbox && (u.outcome.Pod == nil || u.status.Container(ev.ContainerID) == nil)
		if removed && i.opts.Cache.AwaitRemoved(ev.ContainerID) != nil { // nil too if the last status shows the end
			ended = append(ended, ev.ContainerID)
		}
	}
	if len(ended) == 0 {
		i.say(u, out, settled)
		return
	}
	i.waiting++
	i.workers.Go(func() {
		tick := time.NewTicker(sayWait / sayTicks)
		defer tick.Stop()
		i.awaitEnds(ctx, ended, tick.C)
		i.told <- u
	})
}

// awaitEnds waits until more is known of each container, for sayTicks at most: events that the runtime
// sent while this process was stopped must still be read.
func (i *Inspector) awaitEnds(ctx context.Context, ended []pleg.ContainerID, tick <-chan time.Time) {
	left := sayTicks
	for _, id := range ended {
		for more := i.opts.Cache.AwaitRemoved(id); more != nil && left > 0; more = i.opts.Cache.AwaitRemoved(id) {
			select {
			case <-more:
			case <-tick:
				left--
			case <-ctx.Done():
				return
			}
		}
	}
}

// say publishes a change, and settles it.
func (i *Inspector) say(u unsaid, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	u.outcome.Events = append(i.fillFromStatus(u.outcome.Events, u.status, u.last), u.network...)
	out <- u.outcome
	settled <- u.settled
}

// hasEnded reports whether a status shows the end of its container; the status may be nil.
func hasEnded(c *pleg.ContainerStatus) bool { return c != nil && c.State == pleg.StateExited }
