package pleg_test

import (
	"fmt"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestParsePosition(t *testing.T) {
	for _, test := range []struct {
		in   string
		want pleg.Position
	}{
		{"3c5e:0", pleg.Position{Epoch: "3c5e"}},
		{"3c5e:7", pleg.Position{Epoch: "3c5e", Seq: 7}},
		{"e:10", pleg.Position{Epoch: "e", Seq: 10}},
		{"a:b:18446744073709551615", pleg.Position{Epoch: "a:b", Seq: 1<<64 - 1}},
	} {
		got, err := pleg.ParsePosition(test.in)
		if err != nil || got != test.want {
			t.Errorf("ParsePosition(%q) = %v, %v, want %v", test.in, got, err, test.want)
		}
		if got.String() != test.in {
			t.Errorf("%q is formatted as %q", test.in, got)
		}
	}
}

func TestParsePositionRefusesWhatItCannotResume(t *testing.T) {
	const none, bare = " is not a position", " has no epoch, so it may be a number of another pipeline"
	for in, says := range map[string]string{
		"": none, ":": none, "x": none, "a": none, "3c5e:": none, "3c5e:-1": none, "3c5e:+1": none, "1 ": none, "1:\n": none,
		"3c5e:18446744073709551616": none, "475": bare, ":475": bare, "0": bare,
	} {
		want := fmt.Sprintf("%q%s: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120", in, says)
		if got, err := pleg.ParsePosition(in); err == nil || err.Error() != want || got != (pleg.Position{}) {
			t.Errorf("ParsePosition(%q) = %v, %v, want %s", in, got, err, want)
		}
	}
}

func TestPositionOfEvent(t *testing.T) {
	for _, test := range []struct {
		name  string
		event pleg.Event
		ok    bool
	}{
		{"an event", pleg.Event{Seq: 7, Epoch: "e", Type: pleg.ContainerStarted}, true},
		{"a reinspected pod", pleg.Event{Seq: 7, Epoch: "e", Type: pleg.PodSync}, true},
		{"a mark", pleg.Event{Seq: 7, Epoch: "e", Type: pleg.Bookmark}, true},
		{"a gap", pleg.Event{Seq: 7, Epoch: "e", Type: pleg.Gap}, false},
		{"an event that no pipeline published", pleg.Event{Seq: 7, Type: pleg.ContainerStarted}, false},
	} {
		if got, ok := test.event.Position(); ok != test.ok || got.Seq != 7 || got.Epoch != test.event.Epoch {
			t.Errorf("position of %s = %v, %t, want %t", test.name, got, ok, test.ok)
		}
	}
}

func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"7", "3c5e:7", "a:b:7", ":7", "a:-1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := pleg.ParsePosition(s)
		if err != nil {
			return
		}
		if again, err := pleg.ParsePosition(p.String()); err != nil || again != p {
			t.Errorf("%q is parsed as %v, and that as %v, %v", s, p, again, err)
		}
	})
}
