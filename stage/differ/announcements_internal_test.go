package differ

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A flood of events is remembered only in part, the newest of them.
func TestAnnouncementsAreBounded(t *testing.T) {
	a := newAnnouncements(nil, nil)
	now := time.Unix(1_700_000_000, 0)
	nth := func(n int) step { return step{pleg.ContainerID(rune(n)), pleg.ContainerStarted} }
	for n := range 2 * maxRecent {
		a.add(nth(n), byList, now)
	}
	if len(a.recent) != maxRecent || len(a.order) != maxRecent || a.due != maxRecent {
		t.Errorf("%d steps, %d in order, %d due; want %d of each", len(a.recent), len(a.order), a.due, maxRecent)
	}
	if _, ok := a.recent[nth(2*maxRecent-1)]; !ok {
		t.Error("the newest step is forgotten")
	}
}
