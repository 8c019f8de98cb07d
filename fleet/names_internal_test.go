package fleet

import (
	"strings"
	"testing"
)

func TestTokens(t *testing.T) {
	tests := []struct{ name, want string }{
		{"node-1", "node-1"},
		{"node-1.example.com", "node-1_example_com"},
		{"node_1", "node=5F1"},
		{"", "="},
		{"a*b >=", "a=2Ab=20=3E=3D"},
		{"ä", "=C3=A4"},
	}
	for _, tt := range tests {
		got := token(tt.name)
		if got != tt.want {
			t.Errorf("token(%q) is %q, want %q", tt.name, got, tt.want)
		}
		if back, err := fromToken(got); err != nil || back != tt.name {
			t.Errorf("fromToken(%q) is %q, %v, want %q", got, back, err, tt.name)
		}
	}
	for _, bad := range []string{"=2", "a=G0", "=5"} {
		if name, err := fromToken(bad); err == nil {
			t.Errorf("fromToken(%q) is %q, want an error", bad, name)
		}
	}
}

func TestNamesOfNodes(t *testing.T) {
	for _, bad := range []string{"", "a b", "a/b", "a\n", "ä", strings.Repeat("x", 254)} {
		if checkName("Node", bad) == nil {
			t.Errorf("the name %q is accepted", bad)
		}
	}
	if err := checkName("Node", "node_1.example.com"); err != nil {
		t.Error(err)
	}
	if got, err := nodeOf(podKey("prod.eu", "n.1", "shop", "uid")); err != nil || got != "n.1" {
		t.Errorf("the node is %q, %v, want n.1", got, err)
	}
}

func TestPositions(t *testing.T) {
	for _, p := range []place{{stream: "18a5", message: 12}, {stream: "18a5", message: 12, events: 3}, {stream: "18a5", message: 12, stored: 1 << 60}, {stream: "18a5", message: 12, events: 3, stored: 1}, {stream: "x"}} {
		if _, err := ParsePosition(string(p.position())); err != nil || p.position().in(part{0, 1}) != p {
			t.Errorf("%+v is read as %+v, %v", p, p.position().in(part{0, 1}), err)
		}
	}
	for _, bad := range []string{"", "12", ":12", "a:", "a:x", "a:1+", "a:1+-1", "a:1+x", "a:1@", "a:1@x", "a:1@-1", "a:1,b"} {
		if got, err := ParsePosition(bad); err == nil {
			t.Errorf("%q is read as %v, want an error", bad, got)
		}
	}
	// One of another number of parts has no place in a part, nor has one of other parts.
	for _, tt := range []struct {
		p    Position
		of   part
		want place
	}{
		{"a:1,,c:3", part{0, 3}, place{stream: "a", message: 1}},
		{"a:1,,c:3", part{1, 3}, place{}},
		{"a:1,,c:3", part{2, 3}, place{stream: "c", message: 3}},
		{"a:1,,c:3", part{0, 2}, place{}},
		{"a:1", part{0, 3}, place{}},
	} {
		if _, err := ParsePosition(string(tt.p)); err != nil || tt.p.in(tt.of) != tt.want {
			t.Errorf("the position %s in %+v is %+v, %v, want %+v", tt.p, tt.of, tt.p.in(tt.of), err, tt.want)
		}
	}
}

// The names of a fleet of one part have none. With more, a node's part is the one that nats-server
// computes from its token.
func TestParts(t *testing.T) {
	for _, tt := range []struct {
		node    string
		parts   int
		subject string
		bucket  string
	}{
		{"n.1", 1, "pleg.v1.ev.prod_eu.n_1", "pleg-state"},
		{"n.1", 8, "pleg.v1.ev.prod_eu.1.n_1", "pleg-state-1"},
		{"node-2", 8, "pleg.v1.ev.prod_eu.6.node-2", "pleg-state-6"},
		{"node-5", 8, "pleg.v1.ev.prod_eu.7.node-5", "pleg-state-7"},
	} {
		p := partOf(tt.node, tt.parts)
		if got := p.eventSubject("prod.eu", tt.node); got != tt.subject {
			t.Errorf("node %s of %d parts: subject %s, want %s", tt.node, tt.parts, got, tt.subject)
		}
		if got := p.nameOf(StateBucket); got != tt.bucket {
			t.Errorf("node %s of %d parts: bucket %s, want %s", tt.node, tt.parts, got, tt.bucket)
		}
	}
}
