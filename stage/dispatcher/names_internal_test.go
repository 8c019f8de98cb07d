package dispatcher

import (
	"testing"
)

// Names are distinct, the lowest free number is used again, and nothing is left of
// subscribers that have gone.
func TestNames(t *testing.T) {
	n := newNames()
	type taken struct {
		name, label string
		number      int
	}
	var all []taken
	take := func(name, want string) {
		t.Helper()
		label, number := n.assign(name)
		if label != want {
			t.Errorf("a subscriber %s is called %s, want %s", name, label, want)
		}
		all = append(all, taken{name, label, number})
	}
	release := func(i int) { n.release(all[i].name, all[i].label, all[i].number) }
	take("a", "a")
	take("a", "a-2")
	take("a-3", "a-3")
	take("a", "a-4")
	take("b", "b")
	release(1)
	take("a", "a-2")
	take("a", "a-5")
	release(0)
	take("a", "a")
	for i := 2; i < len(all); i++ {
		release(i)
	}
	if len(n.taken) > 0 || len(n.free) > 0 {
		t.Errorf("left are %v and %v, want nothing", n.taken, n.free)
	}
}
