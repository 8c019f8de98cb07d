package inspector

import (
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Contradictions that two inspections have seen are named, the longest first, and otherwise by pod and container.
func TestLastingContradictions(t *testing.T) {
	of := func(times int, uid pleg.PodUID, containers ...pleg.ContainerID) contradicted {
		c := contradicted{times: times}
		for n, id := range containers {
			c.found = append(c.found, pleg.Contradiction{UID: uid, Container: id, Since: time.Unix(9-int64(n/2), 0)})
		}
		return c
	}
	i := &Inspector{contradicted: map[pleg.PodUID]contradicted{
		"a": of(3, "a", "z", "y", "c"), "b": of(2, "b", "x", "w"), "m": of(1, "m", "v"), "z": of(4, "z", "b", "a"),
	}}
	for range 20 { // in any order of the map
		var got []string
		for _, c := range i.lasting() {
			got = append(got, fmt.Sprintf("%s/%s", c.UID, c.Container))
		}
		if want := "[a/c a/y a/z b/w b/x z/a z/b]"; fmt.Sprint(got) != want {
			t.Fatalf("lasting are %v, want %s", got, want)
		}
	}
}
