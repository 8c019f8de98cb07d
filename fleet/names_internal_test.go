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

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "a b", "a/b", "a\n", "ä", strings.Repeat("x", 254)} {
		if checkName("Node", bad) == nil {
			t.Errorf("the name %q is accepted", bad)
		}
	}
	if err := checkName("Node", "node_1.example.com"); err != nil {
		t.Error(err)
	}
	subject := podSubject("prod.eu", "n.1", "uid")
	if got, err := nodeOf(subject, nodePlace); subject != "pleg.v2.prod_eu.n_1.uid" || err != nil || got != "n.1" {
		t.Errorf("the node in %s is %q, %v, want n.1", subject, got, err)
	}
	if got := podSubject("prod.eu", "n.1", ""); got != "pleg.v2.prod_eu.n_1."+nodeToken {
		t.Errorf("the subject of a node is %s", got)
	}
	if long := StreamName(strings.Repeat("_", 100)); len(long) > 255 || long == StreamName(strings.Repeat("_", 101)) {
		t.Errorf("the stream of a long name is %s", long)
	}
}

func TestPositions(t *testing.T) {
	for _, p := range []place{{stream: "18a5", message: 12}, {stream: "18a5", message: 12, stored: 1 << 60}, {stream: "x"}} {
		if got, err := parsePlace(string(p.position())); err != nil || got != p {
			t.Errorf("%+v is read as %+v, %v", p, got, err)
		}
	}
	for _, bad := range []string{"", "12", ":12", "a:", "a:x", "a:1+1", "a:1@", "a:1@x", "a:1@-1", "a:1,b:1"} {
		if got, err := ParsePosition(bad); err == nil {
			t.Errorf("%q is read as %v, want an error", bad, got)
		}
	}
}
