package differ_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// Rows are the old state, columns the new one. Sandboxes have the same transitions.
func TestEventsOfEachTransition(t *testing.T) {
	states := []string{"absent", "unknown", "created", "running", "exited"}
	const died = "Died(x) Removed(x)"
	table := [][]string{
		{"", "Changed(x)", "Created(x)", "Started(x)", "Died(x)"},
		{died, "", "", "Started(x)", "Died(x)"},
		{died, "", "", "Started(x)", "Died(x)"},
		{died, "Changed(x)", "Changed(x)", "", "Died(x)"},
		{"Removed(x)", "Changed(x)", "Changed(x)", "Started(x)", ""},
	}
	words := func(state string) string {
		if state == "absent" {
			return "keep=running"
		}
		return "keep=running x=" + state
	}
	for i, from := range states {
		for j, to := range states {
			t.Run(from+" to "+to, func(t *testing.T) {
				old, cur := plegtest.Pod("a", words(from)), plegtest.Pod("a", words(to))
				if got, want := plegtest.Words(differ.Events(old, cur, at(1))...), table[i][j]; got != want {
					t.Errorf("events = %q, want %q", got, want)
				}
			})
		}
	}
}

func TestEventsOfAPod(t *testing.T) {
	for name, tc := range map[string]struct{ old, cur, want string }{
		"new: containers, then sandboxes": {
			"absent", "c1=running c0=running /s=running", "Started(c1) Started(c0) Started(/s)",
		},
		"old containers, old sandboxes, then new ones": {
			"c0=running /s0=running", "c1=running c0=exited /s1=running /s0=exited",
			"Died(c0) Died(/s0) Started(c1) Started(/s1)",
		},
		"double restart": {
			"c1=running c0=running /s=running", "d1=running d0=running c1=exited c0=exited /s=running",
			"Died(c1) Died(c0) Started(d1) Started(d0)",
		},
		"events follow the old order": {
			"a=running b=running", "b=exited a=exited", "Died(a) Died(b)",
		},
		"another order is no change": {"a=running b=exited", "b=exited a=running", ""},
		"removed while running": {
			"c1=running /s=running", "absent", "Died(c1) Removed(c1) Died(/s) Removed(/s)",
		},
		"removed after it exited":            {"c1=exited /s=exited", "absent", "Removed(c1) Removed(/s)"},
		"sandbox that is not ready has died": {"/s=running", "/s=exited", "Died(/s)"},
		"created and unknown are the same":   {"c=created", "c=unknown", ""},
		"removed while created":              {"c=created /s=running", "/s=running", "Died(c) Removed(c)"},
		"the first of two containers with one id counts": {
			"c=running", "c=exited c=running", "Died(c)",
		},
		"container and sandbox with one id": {
			"x=running", "x=running /x=exited", "",
		},
		"absent to absent": {"absent", "absent", ""},
		"empty to absent":  {"", "absent", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := func(words string) *pleg.Pod {
				if words == "absent" {
					return nil
				}
				return plegtest.Pod("a", words)
			}
			if got := plegtest.Words(differ.Events(pod(tc.old), pod(tc.cur), at(1))...); got != tc.want {
				t.Errorf("events = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEventsHaveTheFieldsOfTheirContainer(t *testing.T) {
	cur := plegtest.Pod("a", "c=running /s=running")
	cur.Containers[0].Attempt, cur.Sandboxes[0].Attempt = 4, 2
	want := []pleg.Event{{
		Type: pleg.ContainerStarted, PodUID: "a", PodName: "name-a", PodNamespace: "ns",
		ContainerID: "c", ContainerName: "of-c", Attempt: 4, ObservedAt: at(7),
	}, {
		Type: pleg.ContainerStarted, PodUID: "a", PodName: "name-a", PodNamespace: "ns",
		ContainerID: "s", ContainerName: "name-a", Attempt: 2, Sandbox: true, ObservedAt: at(7),
	}}
	got := differ.Events(nil, cur, at(7))
	if len(got) != len(want) {
		t.Fatalf("events = %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d = %+v, want %+v", i, got[i], want[i])
		}
	}
}
