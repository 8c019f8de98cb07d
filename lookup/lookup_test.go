package lookup_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
)

// The error of a lookup names the query.
func TestQueryIsReadable(t *testing.T) {
	for want, q := range map[string]lookup.Query{
		"container c1": {Container: "c1"}, "process 4711": {PID: 4711}, "cgroup 12": {Cgroup: 12},
	} {
		if got := q.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
