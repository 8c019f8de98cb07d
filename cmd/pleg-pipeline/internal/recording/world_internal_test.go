package recording

import "testing"

// Comparing a list with the one before costs nothing if they share their items, or have not
// as many: a file of a few bytes a list could otherwise keep the reader busy for hours.
func TestEqualListsCostNothing(t *testing.T) {
	items := make([]*item, 100_000)
	for i := range items {
		items[i] = new(item)
	}
	list, same, shorter := &step{items: items}, &step{items: items}, &step{items: items[1:]}
	if got := testing.AllocsPerRun(10, func() {
		if !same.equals(list) || shorter.equals(list) {
			t.Error("lists with the same items are different, or others are equal")
		}
	}); got > 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
