package mailbox_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ready(b *mailbox.Box[int]) bool {
	select {
	case <-b.Wake():
		return true
	default:
		return false
	}
}

func TestTakeReturnsDistinctValuesInOrder(t *testing.T) {
	b := mailbox.New[int]()
	for _, v := range []int{3, 1, 3, 2, 1} {
		if !b.Put(v) {
			t.Fatalf("Put(%d) = false, want true of an open box", v)
		}
	}
	if got, want := b.Take(), []int{3, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("Take() = %v, want %v", got, want)
	}
	if got := b.Take(); len(got) > 0 {
		t.Errorf("second Take() = %v, want nothing", got)
	}
	b.Put(3)
	if got, want := b.Take(), []int{3}; !slices.Equal(got, want) {
		t.Errorf("Take() after the same value was put again = %v, want %v", got, want)
	}
}

func TestWakeIsReadyWhileTheBoxHasValues(t *testing.T) {
	b := mailbox.New[int]()
	if ready(b) {
		t.Error("Wake of an empty box is ready")
	}
	b.Put(1)
	b.Put(2)
	if !ready(b) {
		t.Error("Wake of a box with values is not ready")
	}
	b.Put(3)
	b.Take()
	if ready(b) {
		t.Error("Wake of an emptied box is ready")
	}
	b.Put(1)
	if !ready(b) {
		t.Error("Wake of a refilled box is not ready")
	}
}

func TestCloseReturnsTheRestAndRefusesMore(t *testing.T) {
	b := mailbox.New[int]()
	b.Put(1)
	if got, want := b.Close(), []int{1}; !slices.Equal(got, want) {
		t.Errorf("Close() = %v, want %v", got, want)
	}
	if b.Put(2) {
		t.Error("Put in a closed box = true")
	}
	if got := b.Close(); len(got) > 0 {
		t.Errorf("second Close() = %v, want nothing", got)
	}
}

// A value that is put while the owner takes the others must wake the owner again.
func TestConcurrentPutsAreAllTaken(t *testing.T) {
	const senders, each = 8, 200
	synctest.Test(t, func(t *testing.T) {
		b := mailbox.New[int]()
		var putting sync.WaitGroup
		for s := range senders {
			putting.Go(func() {
				for n := range each {
					b.Put(s*each + n)
				}
			})
		}
		taken := make(map[int]int)
		for len(taken) < senders*each {
			<-b.Wake()
			for _, v := range b.Take() {
				taken[v]++
			}
		}
		putting.Wait()
		for v, n := range taken {
			if n != 1 {
				t.Errorf("value %d was taken %d times, want once", v, n)
			}
		}
	})
}
