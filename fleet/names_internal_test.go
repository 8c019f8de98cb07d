package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestNames(t *testing.T) {
	const letters = "want letters, digits, '-', '.' and '_'"
	for bad, want := range map[string]string{
		"": "Node must not be empty", "a b": `Node is "a b": ` + letters, "a/b": `Node is "a/b": ` + letters, "a\n": `Node is "a\n": ` + letters, "ä": `Node is "ä": ` + letters,
		"a=b": `Node is "a=b": ` + letters, strings.Repeat("x", 254): "Node has 254 bytes, the limit is 253",
	} {
		if got := fmt.Sprint(checkName("Node", bad, maxName)); got != want {
			t.Errorf("the name %q: %s, want %s", bad, got, want)
		}
	}
	longest := strings.Repeat("_", maxCluster) // a _ takes most
	for most, name := range map[int]string{maxName: strings.Repeat("x", 253), maxCluster: longest} {
		if err := checkName("Node", name, most); err != nil || len(StreamName(longest)) > 255 {
			t.Errorf("%v; the longest name of a stream has %d bytes", err, len(StreamName(longest)))
		}
	}
	for name, want := range map[string]string{"n-1": "n-1", "n.1": "n_1", "n_1": "n=5F1", "=5F": "=5F"} {
		subject := podSubject("prod.eu", name, "uid")
		if got := nodeOf(subject); subject != "pleg.v2.prod_eu."+want+".uid" || checkName("Node", name, maxName) == nil && got != name {
			t.Errorf("the node in %s is %q, want %s", subject, got, name)
		}
	}
	if all, some := allOf("c"), fmt.Sprint(allOf("c", "n", "m.1")); all != nil || some != "[pleg.v2.c.n.> pleg.v2.c.m_1.>]" {
		t.Errorf("all nodes have the filters %q, want none, and two nodes have %s", all, some)
	}
	seen := make(map[string]pleg.PodUID)
	for _, uid := range []pleg.PodUID{"", nodeToken, "a.b", "a_b", "a=5Fb", "shop/web", "shop/wëb", pleg.PodUID(strings.Repeat("x", 300))} {
		subject := podSubject("c", "n", uid)
		if other, twice := seen[subject]; twice || strings.Count(subject, ".") != 4 || subject == nodeSubject("c", "n") {
			t.Errorf("the subject of %q is %s, as of %q", uid, subject, other)
		}
		seen[subject] = uid
	}
	if got := podSubject("c", "n", "shop/web"); got != "pleg.v2.c.n.=97375646b1deb3d2d5c406cd15750035f52a38beb24211ed2dd66e8824bf15f9" {
		t.Errorf("the subject of a UID that is no name is %s", got)
	}
}

func TestLimits(t *testing.T) {
	for given, want := range map[Limits]Limits{
		{}:            {MaxAge: 24 * time.Hour, Replicas: 1},
		{MaxBytes: 1}: {MaxAge: 24 * time.Hour, MaxBytes: 1, MaxAgentBytes: 32 << 20, Replicas: 1},
		{3, 1, 2, 5}:  {3, 1, 2, 5},
	} {
		got := given
		if err := got.complete(); err != nil || got != want {
			t.Errorf("of %+v: %+v, %v; want %+v", given, got, err, want)
		}
	}
	for _, bad := range []Limits{{MaxBytes: -1}, {MaxAgentBytes: -1}, {Replicas: -1}, {Replicas: 6}, {MaxAge: -1}} {
		want := fmt.Sprintf("Limits has a negative MaxBytes or MaxAgentBytes, or not 1 to 5 Replicas: %+v", bad)
		if bad.MaxAge < 0 {
			want = "Options.Limits.MaxAge must be positive, got -1ns"
		}
		if err := bad.complete(); fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPositions(t *testing.T) {
	if text := string(encode(Event{Node: "n", At: "1:2:3"})); !strings.HasSuffix(text, `,"node":"n","at":"1:2:3"}`) {
		t.Errorf("an event is written as %s", text)
	}
	for _, p := range []place{{stream: 18, message: 12}, {stream: 18, message: 12, stored: 1 << 60}, {stream: 1}} {
		if got, err := parsePlace(string(p.position())); err != nil || got != p {
			t.Errorf("%+v is read as %+v, %v", p, got, err)
		}
		if got, err := ParsePosition(string(p.position())); err != nil || got != p.position() {
			t.Errorf("%s is read as %s, %v", p.position(), got, err)
		}
	}
	for _, bad := range []string{"", "12", ":12", "a:", "a:x", "a:1", "a:1:", "a:1:g", "a:+1:1", "a:1:1 ", "a:1:1:1"} {
		want := fmt.Sprintf("%q is not a position of a fleet: want STREAM:MESSAGE:STORED, such as 18a5b5b0c2a7e400:120:18a5b5b1d0a7e400", bad)
		if got, err := ParsePosition(bad); fmt.Sprint(err) != want || got != "" {
			t.Errorf("%q is read as %v, %v; want %s", bad, got, err, want)
		}
	}
}
