package fleet

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// verifyPeriod is the time between two looks at the server's messages of the node.
const verifyPeriod = 20 * time.Second

// verify makes the agent begin again if the newest message of a pod, or of the node, was removed or overwritten. The
// server counts the messages of each subject; the agent asks for their sequence numbers only if a count has changed.
func (p *Publisher) verify(ctx context.Context) error {
	info, err := p.info(ctx, jetstream.WithSubjectFilter(p.all))
	if err != nil {
		return err
	}
	now := info.State.LastSeq
	restored := now < max(p.last, p.newestOfAll) // a backup was restored, or the server has lost its newest messages
	if p.newestOfAll = now; restored {
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	all, changed, lost := maps.Clone(p.pods), false, false
	all[p.node] = &p.own
	for subject, r := range all {
		n := info.State.Subjects[subject]
		changed, lost = changed || n != r.count, lost || n == 0
		r.count = n
	}
	if changed && !lost {
		_, err = p.snapshot(ctx, []string{p.all}, func(m *jetstream.RawStreamMsg) {
			r := all[m.Subject]
			lost = lost || r != nil && r.sequence != m.Sequence
		})
	}
	if err == nil && !lost {
		lost, err = p.missesAnEnd(ctx, info.State.Subjects, all)
	}
	if lost {
		return p.lost()
	}
	if err != nil {
		return fmt.Errorf("read the messages of the node: %w", err)
	}
	return nil
}

// maxEnds bounds the pods in one look of missesAnEnd. The other pods wait for the next look.
const maxEnds = 100

// missesAnEnd reports whether the message that a pod is gone was removed or overwritten: its older messages say that
// the pod exists.
func (p *Publisher) missesAnEnd(ctx context.Context, counts map[string]uint64, present map[string]*record) (bool, error) {
	asked := 0
	for subject, r := range p.gone {
		n := counts[subject]
		switch {
		case n == 0 || present[subject] != nil:
			delete(p.gone, subject)
		case n != r.count && asked < maxEnds:
			asked++
			m, err := p.newest(ctx, subject)
			if err != nil {
				return false, err
			}
			if of, err := decode(m.Data); m.Sequence > 0 && (err != nil || of.Pod == nil || !of.Pod.Gone) {
				return true, nil
			}
			r.count = n
		}
	}
	return false, nil
}
