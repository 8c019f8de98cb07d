package encoded_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/encoded"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Whatever is kept, each event gets its own text.
func TestEveryEventGetsItsText(t *testing.T) {
	t.Parallel()
	var kept encoded.Events
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for seq := range uint64(1000) {
				for _, ev := range []pleg.Event{
					{Seq: seq, Type: pleg.ContainerStarted}, {Seq: seq, Type: pleg.ContainerStarted, Replayed: true}, {Seq: seq, Type: pleg.Gap, Missed: seq},
				} {
					text, err := kept.Get(ev, encode)
					if want, _ := encode(ev); err != nil || string(text) != string(want) {
						t.Errorf("%+v: %q, %v", ev, text, err)
					}
				}
			}
		})
	}
	all.Wait()
}

func encode(ev pleg.Event) ([]byte, error) { return fmt.Append(nil, ev), nil }

func TestEncodedOnce(t *testing.T) {
	t.Parallel()
	var kept encoded.Events
	made := 0
	count := func(ev pleg.Event) ([]byte, error) {
		made++
		return encode(ev)
	}
	get := func(ev pleg.Event) {
		t.Helper()
		if _, err := kept.Get(ev, count); err != nil {
			t.Error(err)
		}
	}
	failed := errors.New("failed")
	if _, err := kept.Get(pleg.Event{Seq: 1}, func(pleg.Event) ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	for range 1000 { // subscribers
		get(pleg.Event{Seq: 1})
		get(pleg.Event{Seq: 2})
	}
	if made != 2 {
		t.Errorf("two events were encoded %d times, want once each", made)
	}
}
