package doctor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// Five hundred nodes with five kinds of trouble are ranked by severity, cause, pod and age.
func TestRank(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ill := func(name string, v fleet.Verdict, f fleet.Finding, age time.Duration) fleet.Node {
		f.Subject, f.What, f.Since, f.Advice = f.Pod, "hangs", now.Add(-age), "look"
		v.Findings = []fleet.Finding{f}
		return fleet.Node{Name: name, Verdict: &v}
	}
	problem, warning := fleet.Verdict{Severity: "problem"}, fleet.Verdict{Severity: "warning"}
	hung := fleet.Finding{Cause: "hung container", Pod: "shop/a"}
	other := hung
	other.Pod = "shop/b"
	third := hung
	third.Pod = "shop/c"
	nodes := []fleet.Node{
		{Name: "old-agent"},
		ill("warned", warning, hung, time.Hour),
		ill("silent", problem, fleet.Finding{Cause: "node silent"}, time.Minute),
		ill("second-pod", problem, other, time.Hour),
		ill("young", problem, hung, time.Minute),
		ill("old", problem, hung, time.Hour),
		ill("third-pod", problem, third, time.Hour),
	}
	for i := len(nodes); i < 500; i++ {
		nodes = append(nodes, fleet.Node{Name: fmt.Sprintf("well-%03d", i), Verdict: &fleet.Verdict{Severity: "ok"}})
	}
	ranked := doctor.Rank(nodes, now)
	var text strings.Builder
	if err := ranked.Print(&text, doctor.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	if !strings.HasPrefix(lines[0], "PROBLEM: 5 of 500 nodes; old: shop/a hangs since ") || lines[1] != "  Do: look" || ranked.Healthy() {
		t.Errorf("the verdict is %q, %q", lines[0], lines[1])
	}
	var order []string
	for _, line := range lines[4:] {
		order = append(order, strings.Fields(line + " .")[0])
	}
	if got := strings.Join(order, " "); got != "old young second-pod third-pod silent warned old-agent ." {
		t.Errorf("the nodes that are not well are ranked %q:\n%s", got, &text)
	}
	for row, want := range map[int]string{4: "old problem hung container 60m shop/a", 8: "silent problem node silent 60s -", 10: "old-agent unknown - - -"} {
		if got := strings.Join(strings.Fields(lines[row]), " "); got != want {
			t.Errorf("row %d is %q, want %q", row, got, want)
		}
	}
	for want, of := range map[string][]fleet.Node{"OK: 493 of 493 nodes\n": nodes[7:], "OK: 0 of 0 nodes\n": nil} {
		well := doctor.Rank(of, now)
		text.Reset()
		if err := well.Print(&text, doctor.TextOptions{}); err != nil || text.String() != want || !well.Healthy() {
			t.Errorf("%d nodes that are well: %v, %q", len(of), err, &text)
		}
	}
}

// Programs get each verdict as its agent published it, in the order of the text.
func TestJSONOfAFleet(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0).UTC()
	slow := fleet.Finding{Cause: "slow container", Severity: "warning", Subject: "shop/a and 1 more pod", What: "are slow", Since: now.Add(-time.Minute), Advice: "look", Pod: "shop/a"}
	f := doctor.Rank([]fleet.Node{
		{Name: "n1", Verdict: &fleet.Verdict{Severity: "ok", Text: "OK: well", Findings: []fleet.Finding{}}},
		{Name: "n2"},
		{Name: "n3", Verdict: &fleet.Verdict{Severity: "warning", Text: "WARNING: slow", Findings: []fleet.Finding{slow, {Cause: "disk", What: "is full"}}}},
	}, now)
	f.Fills(79_999, 100_000)
	golden(t, f)
}

// The name of a pod is cut in its middle, as far as the table needs to fit the terminal.
func TestTableOfNodesFits(t *testing.T) {
	t.Parallel()
	found := fleet.Finding{Cause: "hung container", Pod: "shop/" + strings.Repeat("p", 100)}
	ranked := doctor.Rank([]fleet.Node{{Name: "n\n1", Verdict: &fleet.Verdict{Severity: "problem", Findings: []fleet.Finding{found}}}}, time.Now())
	if ranked.Verdict != "PROBLEM: 1 of 1 nodes" { // the finding of an older agent says only its cause
		t.Errorf("the verdict is %q", ranked.Verdict)
	}
	for width, want := range map[int]string{60: "shop/ppppppp…ppppppppppp\n", 30: "shop/p…ppppp\n", 0: " " + found.Pod + "\n"} {
		var text strings.Builder
		if err := ranked.Print(&text, doctor.TextOptions{Width: width}); err != nil || !strings.HasSuffix(text.String(), want) || !strings.Contains(text.String(), "\nn?1 ") {
			t.Errorf("in a width of %d: %v\n%s\nwant %q", width, err, &text, want)
		}
	}
}

// A stream that is nearly full turns a good verdict into a warning, in its color, and is added to any other
// verdict.
func TestRankWithAFullStream(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		severity    verdict.Severity
		used, limit uint64
		want        string
	}{
		{"ok", 799, 1000, "\x1b[32mOK\x1b[0m: 1 of 1 nodes\n"},
		{"ok", 800, 1000, "\x1b[33mWARNING\x1b[0m: 1 of 1 nodes; the stream is 80 % full\n"},
		{"ok", 800, 0, "\x1b[32mOK\x1b[0m: 1 of 1 nodes\n"},
		{"warning", 1000, 1000, "\x1b[33mWARNING\x1b[0m: 1 of 1 nodes; the stream is 100 % full\n"},
		{"unknown", 0, 1000, "\x1b[33mUNKNOWN\x1b[0m: 1 of 1 nodes\n\nNODE  VERDICT  CAUSE  AGE  POD\nn1    unknown  -      -    -\n"},
		{"of a newer agent", 0, 1000, "\x1b[33mOF A NEWER AGENT\x1b[0m: 1 of 1 nodes\n"},
		{"problem", 900, 1000, "\x1b[31mPROBLEM\x1b[0m: 1 of 1 nodes; the stream is 90 % full\n"},
	} {
		ranked := doctor.Rank([]fleet.Node{{Name: "n1", Verdict: &fleet.Verdict{Severity: test.severity}}}, time.Now())
		if ranked.Fills(test.used, test.limit); test.limit == 0 && ranked.Stream != 0 {
			t.Errorf("the stream has no limit and is %d %% full", ranked.Stream)
		}
		var text strings.Builder
		if err := ranked.Print(&text, doctor.TextOptions{Color: true}); err != nil || !strings.HasPrefix(text.String(), test.want) {
			t.Errorf("%s, %d of %d bytes: %v, %q, want %q", test.severity, test.used, test.limit, err, &text, test.want)
		}
		if ranked.Healthy() != (test.severity != "problem" && test.severity != "of a newer agent") { // for the exit code
			t.Errorf("%s: healthy is %t", test.severity, ranked.Healthy())
		}
	}
}
