package cli_test

import (
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// TestWaitEndsWhenOnlyHungPodsAreMissing decides whether "pods" waits for more pods.
func TestWaitEndsWhenOnlyHungPodsAreMissing(t *testing.T) {
	hung := pipeline.Inspection{UID: "hung", Hung: true}
	slow := pipeline.Inspection{UID: "slow"}
	away := pipeline.Quarantined{UID: "away"}
	retried := pipeline.Quarantined{UID: hung.UID}
	for name, test := range map[string]struct {
		status pipeline.Status
		want   bool
	}{
		"before the first list":     {},
		"all known":                 {status: pipeline.Status{Quarantined: []pipeline.Quarantined{away}}},
		"one hangs":                 {status: pipeline.Status{Waiting: 1, Overdue: []pipeline.Inspection{hung}}, want: true},
		"one waits in quarantine":   {status: pipeline.Status{Waiting: 2, Overdue: []pipeline.Inspection{hung}, Quarantined: []pipeline.Quarantined{away}}, want: true},
		"one more waits":            {status: pipeline.Status{Waiting: 2, Overdue: []pipeline.Inspection{hung}}},
		"one is slow":               {status: pipeline.Status{Waiting: 2, Overdue: []pipeline.Inspection{hung, slow}}},
		"the same is counted once":  {status: pipeline.Status{Waiting: 2, Overdue: []pipeline.Inspection{hung}, Quarantined: []pipeline.Quarantined{retried}}},
		"an idle pod in quarantine": {status: pipeline.Status{Overdue: []pipeline.Inspection{hung}}},
	} {
		if got := cli.OnlyHung(test.status); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
