package top

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gdamore/tcell/v3/color"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// sample is a model with a hung, a quarantined, a dead and a busy pod.
func sample() *model {
	bad := viewOf("web-7d4b9c6f5d-x2x9k", 1, 0)
	bad.CurrentAsOf = noon.Add(-13 * time.Second)
	away := viewOf("cart-0", 1, 3)
	s := healthy()
	nginx := &pleg.Call{Method: "ContainerStatus", Container: "nginx"}
	s.Overdue = []pleg.Inspection{{UID: bad.UID, Namespace: "shop", Name: bad.Name, Started: noon.Add(-12 * time.Second), Hung: true, Call: nginx}}
	s.Quarantined = []pleg.Quarantined{{
		UID: away.UID, Namespace: "shop", Name: away.Name, Since: noon.Add(-time.Minute), Hung: 4, NextTry: noon.Add(8 * time.Second), Call: nginx,
	}}
	found := verdict.Pods(s)
	bad.SetFinding(found[bad.UID])
	away.SetFinding(found[away.UID])
	m := newModel(Options{})
	m.apply(update{state: State{Status: s, Pods: []view.Pod{viewOf("idle", 1, 0), bad, viewOf("dead", 0, 7), away, viewOf("busy", 1, 2)}}}, noon.Add(-9*time.Second))
	for i := range 9 {
		now := noon.Add(time.Duration(i-9) * time.Second)
		for range i % 4 {
			m.addEvent(event("busy", pleg.ContainerStarted), now)
		}
	}
	code := int32(137)
	died := event("dead", pleg.ContainerDied)
	died.ExitCode, died.Reason = &code, "OOMKilled"
	died.StartedAt, died.FinishedAt = noon.Add(-3*time.Minute), noon
	m.addEvent(died, noon)
	m.arrange(noon)
	return m
}

// allHang is a pipeline on which six inspections hang, and seven more that may hang.
func allHang() pleg.Status {
	s := healthy()
	s.InFlight, s.Waiting = 14, 30
	for n := range 13 {
		s.Overdue = append(s.Overdue, pleg.Inspection{UID: pleg.PodUID(fmt.Sprint("pod-", n)), Started: noon.Add(-12 * time.Second), Hung: n < 6})
	}
	return s
}

// TestScreens compares whole screens with files.
func TestScreens(t *testing.T) {
	for _, test := range []struct {
		name          string
		width, height int
		keys          []key
	}{
		{"80x24", 80, 24, nil},
		{"120x30", 120, 30, []key{"Down"}},
		{"40x12", 40, 12, nil},
		{"10x3", 10, 3, nil},
		{"scrolled", 40, 12, []key{"PgDn", "Down", "Up", "PgDn", "PgUp"}},
		{"help", 80, 24, []key{"?"}},
		{"filter", 80, 24, []key{"/", "d", "e", "a", "d"}},
		{"filtered", 80, 24, []key{"/", "d", "e", "a", "d", "Enter"}},
		{"edited", 40, 12, append([]key{"/"}, slices.Repeat([]key{"a", "b"}, 20)...)},
		{"nothing", 80, 24, []key{"/", "x", "y", "Enter"}},
		{"start", 80, 24, nil},
		{"unlisted", 80, 24, nil},
		{"gap", 80, 24, nil},
		{"wide", 160, 12, nil},
		{"paused", 80, 24, []key{"p"}},
		{"hang", 80, 24, nil},
		{"cluster", 80, 24, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			term := newTerminal(t, test.width, test.height)
			m, s := sample(), &screen{Screen: term.screen}
			switch test.name {
			case "start":
				m = newModel(Options{Filter: "words of the command line"})
			case "unlisted":
				m = newModel(Options{Filter: "x"})
				m.apply(update{state: State{Status: pleg.Status{At: noon, Inspectors: 8, Waiting: 3, InFlight: 2}}}, noon)
			case "wide": // one name, as of a static pod and its successor
				last := &pleg.PodStatus{Namespace: "kube-system", Name: "etcd-worker-3"}
				entries := []cache.Entry{{UID: "8c1f0d5b2a", Last: last}, {UID: "0b7e77e0-2c3d-4f6a", Last: last}}
				m.apply(update{state: State{Status: m.state.Status, Pods: view.Pods(entries, pleg.Status{})}}, noon)
			case "gap":
				ev := event("busy", pleg.ContainerDied)
				ev.Node, ev.ContainerName, ev.ExitCode = "worker-3.eu-west.example.com", "日本語", new(int32(0))
				m.addEvent(ev, noon)
				ev.Type, ev.PodName, ev.Sandbox, ev.Replayed = pleg.ContainerRemoved, "", true, false
				m.addEvent(ev, noon)
				m.addEvent(fleet.Event{Event: pleg.Event{Type: pleg.Gap, Missed: 7, Reason: pleg.HistoryTooShort}}, noon)
				m.apply(update{state: m.state}, noon)
			case "hang":
				m.state.Status = allHang()
			case "cluster":
				m.state.Cluster = &Cluster{Figures: [][2]string{{"nodes", "20"}, {"silent", "0"}}}
				for n := range m.state.Pods {
					m.state.Pods[n].Node = "worker-3.eu-west.example.com"
				}
				m.apply(update{state: m.state}, noon)
			}
			s.draw(m, noon) // the model learns the number of rows
			for _, k := range test.keys {
				kit.Must(t, m.press(k, noon))
				s.draw(m, noon)
			}
			kit.Must(t, term.Drain())
			kit.Golden(t, "testdata/"+test.name+".golden", term.text()+term.styles())
		})
	}
}

// Only a wide terminal has room for rates and ages beside nodes.
func TestColumnsOfACluster(t *testing.T) {
	m := sample()
	m.state.Cluster = &Cluster{}
	for width, want := range map[int]int{90: 7, 91: 9} {
		if columns := m.columns(width, noon); len(columns) != want {
			t.Errorf("%d columns in a width of %d, want %d", len(columns), width, want)
		}
	}
}

// TestHeights draws terminals of each height. No part covers another one: the verdict and the keys are whole, and the
// feed is shown only beside pods.
func TestHeights(t *testing.T) {
	for height := range 30 {
		for _, width := range []int{19, 20, 40, 80} {
			term := newTerminal(t, width, height+1)
			s := &screen{Screen: term.screen}
			s.draw(newModel(Options{}), noon)
			kit.Must(t, term.Drain())
			if text := term.text(); strings.Contains(text, "no pods") {
				t.Errorf("%d x %d, before the first answer:\n%s", width, height+1, text)
			}
			s.draw(sample(), noon)
			kit.Must(t, term.Drain())
			text := term.text()
			lines := strings.Split(text, "\n")
			if height+1 < 6 || width < 20 {
				if text != "too small"+strings.Repeat("\n", height+1) {
					t.Errorf("%d x %d is not too small:\n%s", width, height+1, text)
				}
				continue
			}
			before, _, feed := strings.Cut(text, "\n── events")
			_, pods, _ := strings.Cut(before, "\nNAMESPACE")
			if !strings.HasPrefix(text, "PROBLEM:") || !strings.Contains(text, "\nDo: ") || !strings.Contains(text, "\ninspecting") || !strings.HasPrefix(lines[height], "/ filter") {
				t.Errorf("%d x %d lacks the verdict, the advice, the figures or the keys:\n%s", width, height+1, text)
			}
			top := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "inspecting") }) + 1
			if shown := strings.Contains(pods, "\nshop "); shown != (height-top >= 2) || feed && !shown {
				t.Errorf("%d x %d has events and no pods, or no pods in %d lines:\n%s", width, height+1, height-top, text)
			}
		}
	}
}

// TestOrderOfRows sorts pods as the key s does.
func TestOrderOfRows(t *testing.T) {
	for order, want := range map[string]string{
		"severity": "cart-0 web-7d4b9c6f5d-x2x9k dead busy idle", "events": "busy dead cart-0 idle web-7d4b9c6f5d-x2x9k", "restarts": "dead cart-0 busy idle web-7d4b9c6f5d-x2x9k",
	} {
		m := sample()
		m.sort = order
		m.arrange(noon)
		var names []string
		for _, p := range m.rows {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", order, got, want)
		}
	}
}

// Of pods in the same state, the busiest comes first, then the one with the most restarts.
func TestOrderOfHealthyPods(t *testing.T) {
	busy, restarted, quiet := &pod{Pod: viewOf("z", 1, 0), recent: []int64{1}}, &pod{Pod: viewOf("y", 1, 9)}, &pod{Pod: viewOf("x", 1, 0)}
	for order, want := range map[string]string{"severity": "z y x", "events": "z x y"} {
		all := []*pod{quiet, restarted, busy}
		slices.SortFunc(all, func(a, b *pod) int { return compare(order, a, b) })
		if got := all[0].Name + " " + all[1].Name + " " + all[2].Name; got != want {
			t.Errorf("by %s: %s, want %s", order, got, want)
		}
	}
}

// Each word of a filter is in a name, the state or a container of a pod, or in the words of an event. Every filter shows
// that events are missing.
func TestFilter(t *testing.T) {
	m := newModel(Options{})
	m.apply(of(viewOf("web", 1, 0), viewOf("dead", 0, 0)), noon)
	died := event("dead", pleg.ContainerDied)
	died.Reason, died.Node = "OOMKilled", "worker-7"
	for _, ev := range []fleet.Event{died, event("web", pleg.ContainerStarted)} {
		m.addEvent(ev, noon)
	}
	m.addToFeed(fleet.Event{Event: pleg.Event{Type: pleg.Gap}})
	for filter, want := range map[string][2]int{
		"": {2, 3}, "web": {1, 2}, "SHOP/": {2, 3}, "uid-dead": {1, 2}, "app": {2, 3}, "notready": {1, 1}, "web notready": {0, 1}, "started": {0, 2}, "oomkilled died": {0, 2}, "worker-7 SHOP/dead": {0, 2},
	} {
		m.filter = filter
		if m.arrange(noon); len(m.rows) != want[0] || len(m.events(9)) != want[1] {
			t.Errorf("%q shows %d pods and %d events, want %v", filter, len(m.rows), len(m.events(9)), want)
		}
	}
}

// The first line and the state of the pod have the color of the verdict, and the reason of a trouble that of a problem.
func TestColors(t *testing.T) {
	for severity, want := range map[verdict.Severity]int{verdict.OK: 2, verdict.Warning: 3, verdict.Problem: 1} {
		p, reason := viewOf("web", 1, 0), view.Faint
		if severity != verdict.OK {
			p.SetFinding(verdict.Finding{Cause: verdict.SlowContainer, Severity: severity})
			reason = view.Red
		}
		m, s := newModel(Options{}), &screen{Screen: newTerminal(t, 80, 24).screen}
		m.apply(update{state: State{Pods: []view.Pod{p}, Cluster: &Cluster{}}}, noon)
		s.draw(m, noon)
		columns := m.columns(80, noon)
		if _, style, _ := s.Get(0, 0); style != plain.Foreground(color.PaletteColor(want)).Bold(true) || columns[len(columns)-1].Color(m.rows[0]) != reason {
			t.Errorf("%s has the style %v, its reason %s", severity, style, columns[len(columns)-1].Color(m.rows[0]))
		}
		colored := 0
		for at := 80; at < 80*24; at++ {
			if _, style, _ := s.Get(at%80, at/80); style.GetForeground() == color.PaletteColor(want) {
				colored++
			}
		}
		if colored < len(p.State) {
			t.Errorf("%s: %d cells have its color, want the state %s", severity, colored, p.State)
		}
	}
}

// TestOnlyReadyIsGreen shows a pod whose container has ended.
func TestOnlyReadyIsGreen(t *testing.T) {
	m := newModel(Options{})
	m.apply(of(viewOf("whole", 1, 0), viewOf("dead", 0, 0)), noon)
	for i, want := range []string{"notready 0/1 " + view.Yellow, "ready 1/1 " + view.Green} {
		got := ""
		for _, c := range m.columns(200, noon) {
			switch c.Name {
			case "STATE":
				got = c.Value(m.rows[i]) + " %s " + c.Color(m.rows[i])
			case "RUN":
				got = fmt.Sprintf(got, c.Value(m.rows[i]))
			}
		}
		if got != want {
			t.Errorf("pod %d is shown as %q, want %q", i, got, want)
		}
	}
}

// The first line says why nothing is known, if that is so, and what to do.
func TestVerdict(t *testing.T) {
	frozen := verdict.Error{Finding: verdict.Finding{Severity: verdict.Problem, Summary: "the daemon is stopped", Advice: "continue it"}}
	two := healthy()
	two.Troubles = []pleg.Trouble{
		{Cause: string(verdict.Disk), Problem: true, Subject: "this", What: "fails"}, {Cause: "two", Problem: true, Subject: "that", What: "fails too"}, {Cause: "three", Subject: "nothing", What: "fails"},
	}
	for _, test := range []struct {
		change func(m *model)
		want   string
	}{
		{func(*model) {}, `"waiting for the first answer" "" ok`},
		{func(m *model) { m.apply(of(), noon) }, `"OK: the node is healthy, it has no pods" "" ok`},
		{func(m *model) { m.apply(update{state: State{Status: two}}, noon) }, `"PROBLEM: this fails; also that fails too" "free space (crictl rmi --prune), find the process that writes (iotop, pidstat -d), look for disk errors (dmesg)" problem`},
		{func(m *model) { m.apply(update{err: errors.New("refused")}, noon) }, `"NO ANSWER: refused" "" problem`},
		{func(m *model) { m.disconnected = "it ends" }, `"DISCONNECTED: it ends" "" problem`},
		{func(m *model) { m.apply(update{err: fmt.Errorf("ask: %w", frozen)}, noon) }, `"PROBLEM: the daemon is stopped" "continue it" problem`},
	} {
		m := newModel(Options{})
		test.change(m)
		text, advice, severity := m.verdict(noon)
		if got := fmt.Sprintf("%q %q %s", text, advice, severity); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

// A text with wide characters that does not fit ends in its last cell, and none is cut in half.
func TestWideCharacters(t *testing.T) {
	for width, want := range []string{"..........|0", "….........|1", " …........|2", "日….......|3", "日 …......|4", "日本….....|5", "日本語....|6", "日本語....|6"} {
		s := &screen{Screen: newTerminal(t, 10, 1).screen, width: 10, height: 1}
		for x := range 10 {
			s.Put(x, 0, ".", plain)
		}
		used := s.text(0, 0, width, "日本語", plain)
		got := ""
		for x := 0; x < 10; {
			cell, _, cells := s.Get(x, 0)
			got, x = got+cell, x+max(1, cells)
		}
		if got = fmt.Sprint(got, "|", used); got != want {
			t.Errorf("in %d cells: %q, want %q", width, got, want)
		}
	}
}

// The feed keeps the newest events, in their order.
func TestFeedKeepsTheNewest(t *testing.T) {
	m := newModel(Options{})
	for n := range 1700 {
		ev := event("a", pleg.ContainerStarted)
		ev.Seq = uint64(n)
		m.addEvent(ev, noon)
	}
	shown := m.events(5000)
	for n, ev := range shown {
		if ev.Seq != uint64(1699-n) {
			t.Fatalf("event %d of the feed is number %d", n, ev.Seq)
		}
	}
	if len(shown) < 500 || len(shown) > 1000 {
		t.Errorf("the feed has %d events, want at least 500", len(shown))
	}
	m.paused, m.frozen = true, m.feed
	for range 3000 {
		m.addEvent(event("b", pleg.ContainerDied), noon)
	}
	if still := m.events(5000); !reflect.DeepEqual(still, shown) {
		t.Errorf("a paused feed changes: %d events, want the same %d", len(still), len(shown))
	}
}

// An answer that fails leaves what the last one said.
func TestFailedAnswerChangesNothing(t *testing.T) {
	m := newModel(Options{})
	m.apply(of(viewOf("a", 1, 0)), noon)
	state := m.state
	failed := errors.New("broken")
	if m.apply(update{err: failed}, noon); !reflect.DeepEqual(m.state, state) || !errors.Is(m.err, failed) || len(m.rows) != 1 {
		t.Errorf("the state is %+v with %d rows and the error %v, want %+v", m.state, len(m.rows), m.err, state)
	}
}

// The memory stays bounded if each event of a daemon names a new pod, or has long texts, also in fields
// that nobody sees. A short text that is part of a long message does not keep that message in memory.
func TestEventsOfAnyDaemonAreBounded(t *testing.T) {
	m, now := newModel(Options{}), time.Now()
	long := strings.Repeat("n", 1<<20)
	var ev fleet.Event
	for _, of := range []reflect.Value{reflect.ValueOf(&ev).Elem(), reflect.ValueOf(&ev.Event).Elem()} {
		for _, f := range of.Fields() {
			if f.Kind() == reflect.String {
				f.SetString(long)
			}
		}
	}
	ev.Reason = long[:1]
	for i := range 3*maxPods - 1 { // one less than the number at which pods are forgotten
		ev.Type, ev.PodUID = pleg.ContainerStarted, pleg.PodUID(fmt.Sprint(i))
		m.addEvent(ev, now)
	}
	last := m.pods[ev.PodUID].last
	if unsafe.StringData(last.Reason) == unsafe.StringData(long) {
		t.Error("a text keeps the message of which it is a part")
	}
	if text := fmt.Sprint(*last); len(text) > 10*maxName {
		t.Errorf("an event of %d bytes is kept", len(text))
	}
	for range 2 * maxRecent {
		m.addEvent(fleet.Event{Event: pleg.Event{Type: pleg.ContainerDied, PodUID: "a"}}, now)
	}
	if len(m.pods) != maxPods || len(m.feed) > 2*maxFeed {
		t.Errorf("%d pods and %d events are kept", len(m.pods), len(m.feed))
	}
	for _, p := range m.pods {
		if len(p.recent) > maxRecent || len(p.Name) > maxName {
			t.Fatalf("pod %s has %d events in a minute and a name of %d bytes", p.UID, len(p.recent), len(p.Name))
		}
	}
}

// What an event says of a pod lasts, and the last event of a container says more than that of its sandbox. Replayed events
// did not happen in the last minute. After a Gap nothing is left of what it is about: of all pods, or of those of one node.
func TestWhatAnEventLeaves(t *testing.T) {
	m := newModel(Options{})
	var pods []view.Pod
	for _, name := range []string{"a", "b"} {
		ev := event(name, pleg.ContainerStarted)
		ev.Node, ev.Replayed = "n-"+name, name == "b"
		m.addEvent(ev, noon)
		ev.Type, ev.Sandbox, ev.Replayed, ev.PodName, ev.PodNamespace = pleg.ContainerDied, true, true, "", ""
		m.addEvent(ev, noon)
		pods = append(pods, view.Pod{UID: ev.PodUID, Node: ev.Node, State: view.Hung})
	}
	if state := m.pods["uid-a"].State; state != view.Unknown {
		t.Errorf("before an answer its state is %q", state)
	}
	for _, mark := range []pleg.EventType{pleg.Synced, pleg.Bookmark} {
		m.addEvent(fleet.Event{Event: pleg.Event{Type: mark}}, noon)
	}
	sandbox := event("c", pleg.ContainerStarted)
	sandbox.Sandbox, sandbox.Replayed = true, true
	for _, latest := range []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied} {
		sandbox.Type = latest
		m.addEvent(sandbox, noon)
	}
	if latest := m.pods["uid-c"].latest(noon); latest != "(sandbox) died" || len(m.pods) != 3 {
		t.Errorf("the last event of a pod without containers is %q, and there are %d pods", latest, len(m.pods))
	}
	for _, latest := range []pleg.EventType{pleg.ContainerStarted, pleg.ContainerRemoved} {
		ev := event("c", latest)
		ev.Replayed = true
		m.addEvent(ev, noon)
	}
	if latest := m.pods["uid-c"].latest(noon); latest != "app removed" {
		t.Errorf("the last event of a pod with containers is %q", latest)
	}
	m.apply(update{state: State{Pods: pods}}, noon)
	for n, name := range []string{"a", "b"} {
		if p := m.rows[n]; p.FullName() != "n-"+name+" shop/"+name || p.latest(noon) != "app started" || len(p.recent) != 1-n {
			t.Errorf("%s: %s, %q, %d events in the last minute", name, p.FullName(), p.latest(noon), len(p.recent))
		}
	}
	for _, later := range []time.Duration{59, 60} { // the rate is that of the last minute
		if m.arrange(noon.Add(later * time.Second)); (len(m.rows[0].recent) > 0) != (later < 60) {
			t.Errorf("%d events in the minute before the second %d", len(m.rows[0].recent), later)
		}
	}
	if len(m.feed) != 1 {
		t.Errorf("the feed is %+v, want the event that is not replayed", m.feed)
	}
	for _, test := range []struct {
		node string
		left int
	}{{"n-b", 1}, {"", 0}} {
		m.addEvent(fleet.Event{Node: test.node, Event: pleg.Event{Type: pleg.Gap}}, noon)
		if len(m.pods) != test.left || len(m.rows) != test.left || test.left > 0 && m.rows[0].latest(noon) != "app started" {
			t.Errorf("after a Gap of %q there are %d pods in %d rows, want %d", test.node, len(m.pods), len(m.rows), test.left)
		}
	}
}

// Every key edits the filter or scrolls, as far as there are rows.
func TestEditAndScroll(t *testing.T) {
	var all []view.Pod
	for n := range 30 {
		all = append(all, viewOf(fmt.Sprintf("pod-%02d", n), 1, 0))
	}
	for _, test := range []struct {
		keys, filter string
		top          int
	}{
		{"/ Backspace a b Backspace c Enter Backspace", "ac", 0},
		{"/ a Enter Esc", "", 0},
		{"/ a Esc", "", 0},
		{"/ p o d Tab - 2 Enter PgDn", "pod-2", 0},
		{"Up", "", 0},
		{"Down Down Up", "", 1},
		{"PgDn PgDn", "", 18},
		{"PgDn PgDn PgUp", "", 9},
		{"PgUp", "", 0},
		{"End", "", 20},
		{"End PgDn", "", 20},
		{"End Up", "", 19},
		{"End Home", "", 0},
		{"/ a Up b \x07 Enter", "ab", 0},
	} {
		m := newModel(Options{})
		m.apply(of(all...), noon)
		m.scroll(10)
		for k := range strings.FieldsSeq(test.keys) {
			kit.Must(t, m.press(key(k), noon))
			m.scroll(10)
		}
		if m.filter != test.filter || m.top != test.top || m.editing {
			t.Errorf("%s: filter %q, first row %d, editing %t, want %q and %d", test.keys, m.filter, m.top, m.editing, test.filter, test.top)
		}
	}
}
