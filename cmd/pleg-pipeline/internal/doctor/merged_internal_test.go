package doctor

import (
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// What the daemon knows stays, with its times, and what only this process has seen is added.
func TestMerged(t *testing.T) {
	long, now := time.Unix(1, 0), time.Unix(2, 0)
	status := func(since time.Time, pods ...pleg.PodUID) (s pleg.Status) {
		nodestate.Change(&s.Details, func(n *nodestate.State) {
			n.Disk = &nodestate.Disk{Since: since}
			for _, uid := range pods {
				n.Stuck = append(n.Stuck, nodestate.Stuck{UID: uid, Since: since})
			}
		})
		for _, uid := range pods {
			s.Failed = append(s.Failed, pleg.Failed{UID: uid, Since: since})
			s.Troubles = append(s.Troubles, pleg.Trouble{Cause: "network plugin", Subject: string(uid), Since: since})
		}
		return s
	}
	daemon, own := status(long, "both", "daemon"), status(now, "doctor", "both")
	want := status(long, "both", "daemon")
	added := status(now, "doctor")
	want.Failed, want.Troubles = append(want.Failed, added.Failed...), append(want.Troubles, added.Troubles...)
	nodestate.Change(&want.Details, func(n *nodestate.State) { n.Stuck = append(n.Stuck, nodestate.Of(added.Details).Stuck...) })
	for _, s := range []*pleg.Status{&daemon, &want} {
		nodestate.Change(&s.Details, func(n *nodestate.State) { n.Unread = []nodestate.Unread{{Since: long, Bytes: 800}} })
	}
	text := func(s pleg.Status) string {
		n := nodestate.Of(s.Details)
		return fmt.Sprintf("%+v %+v %+v %+v %+v", s.Failed, s.Troubles, n.Stuck, n.Disk, n.Unread)
	}
	before := text(daemon)
	other := pleg.Trouble{Cause: "runtime not ready", Subject: "both", Since: now}
	own.Troubles, want.Troubles = append(own.Troubles, other), append(want.Troubles, other)
	if got := merged(daemon, &own); text(got) != text(want) {
		t.Errorf("got  %s\nwant %s", text(got), text(want))
	}
	if text(daemon) != before {
		t.Errorf("the status of the daemon has changed: %s", text(daemon))
	}
	nodestate.Change(&own.Details, func(n *nodestate.State) { n.Unread = []nodestate.Unread{{Since: now, Bytes: 900}} })
	n := nodestate.Of(merged(pleg.Status{}, &own).Details) // such as in a container that sees little of the node
	if n.Disk == nil || len(n.Unread) != 1 || n.Unread[0] != (nodestate.Unread{Since: now, Bytes: 900}) {
		t.Errorf("what only this process sees is missing: %+v", n)
	}
}
