package dispatcher

import "fmt"

// names gives each present subscriber a name of its own, for the metrics. Its memory
// grows with the subscribers, and a name costs no look at all the others.
type names struct {
	taken map[string]struct{}
	free  map[string]int // a number below which all of a name are taken
}

func newNames() names { return names{taken: make(map[string]struct{}), free: make(map[string]int)} }

// assign returns name, or name-2, name-3 and so on, whichever is free first.
func (n *names) assign(name string) (label string, number int) {
	for number = max(1, n.free[name]); ; number++ {
		label = name
		if number > 1 {
			label = fmt.Sprintf("%s-%d", name, number)
		}
		if _, ok := n.taken[label]; !ok {
			n.taken[label] = struct{}{}
			n.free[name] = number + 1
			return label, number
		}
	}
}

// release undoes assign.
func (n *names) release(name, label string, number int) {
	delete(n.taken, label)
	if number == 1 {
		delete(n.free, name)
	} else if free, ok := n.free[name]; ok {
		n.free[name] = min(free, number)
	}
}
