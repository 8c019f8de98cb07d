package cli_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// TestWaitEndsWhenOnlyHungPodsAreMissing decides whether "pods" waits for more pods.
func TestWaitEndsWhenOnlyHungPodsAreMissing(t *testing.T) {
	hung := pleg.Inspection{UID: "hung", Hung: true}
	slow := pleg.Inspection{UID: "slow"}
	away := pleg.Quarantined{UID: "away"}
	retried := pleg.Quarantined{UID: hung.UID}
	for name, test := range map[string]struct {
		status pleg.Status
		want   bool
	}{
		"before the first list":     {},
		"all known":                 {status: pleg.Status{Quarantined: []pleg.Quarantined{away}}},
		"one hangs":                 {status: pleg.Status{Waiting: 1, Overdue: []pleg.Inspection{hung}}, want: true},
		"one waits in quarantine":   {status: pleg.Status{Waiting: 2, Overdue: []pleg.Inspection{hung}, Quarantined: []pleg.Quarantined{away}}, want: true},
		"one more waits":            {status: pleg.Status{Waiting: 2, Overdue: []pleg.Inspection{hung}}},
		"one is slow":               {status: pleg.Status{Waiting: 2, Overdue: []pleg.Inspection{hung, slow}}},
		"the same is counted once":  {status: pleg.Status{Waiting: 2, Overdue: []pleg.Inspection{hung}, Quarantined: []pleg.Quarantined{retried}}},
		"an idle pod in quarantine": {status: pleg.Status{Overdue: []pleg.Inspection{hung}}},
	} {
		if got := cli.OnlyHung(test.status); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
