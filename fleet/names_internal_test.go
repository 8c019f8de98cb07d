package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "a b", "a/b", "a\n", "ä", "a=b", strings.Repeat("x", 254)} {
		if checkName("Node", bad, maxName) == nil {
			t.Errorf("the name %q is accepted", bad)
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
	seen := make(map[string]pleg.PodUID)
	for _, uid := range []pleg.PodUID{"", nodeToken, "a.b", "a_b", "a=5Fb", "shop/web", "shop/wëb", pleg.PodUID(strings.Repeat("x", 300))} {
		subject := podSubject("c", "n", uid)
		if other, twice := seen[subject]; twice || strings.Count(subject, ".") != 4 || subject == nodeSubject("c", "n") {
			t.Errorf("the subject of %q is %s, as of %q", uid, subject, other)
		}
		seen[subject] = uid
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
		if bad.complete() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestPositions(t *testing.T) {
	for _, p := range []place{{stream: 18, message: 12}, {stream: 18, message: 12, stored: 1 << 60}, {stream: 1}} {
		if got, err := parsePlace(string(p.position())); err != nil || got != p {
			t.Errorf("%+v is read as %+v, %v", p, got, err)
		}
	}
	for _, bad := range []string{"", "12", ":12", "a:", "a:x", "a:1", "a:1:", "a:1:g", "a:+1:1", "a:1:1 ", "a:1:1:1"} {
		if got, err := ParsePosition(bad); err == nil {
			t.Errorf("%q is read as %v, want an error", bad, got)
		}
	}
}
