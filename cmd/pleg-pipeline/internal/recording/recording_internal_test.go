package recording

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestWindowIsBounded adds lines of one size for some hours. A change of a list is kept for as long
// as other lines, however large the list is.
func TestWindowIsBounded(t *testing.T) {
	t.Parallel()
	large := &item{text: make([]byte, 2*windowBytes)}
	w := newWindow()
	w.add(line{Method: listSandboxes, items: []*item{large}, size: len(large.text)})
	for n := range 1000 {
		w.add(line{At: offset(n) * offset(time.Second), Method: listSandboxes, items: []*item{large, {}}, size: windowBytes / 300})
		if want := min(n+1, 300); n > 1 && len(w.lines) != want {
			t.Fatalf("after %d lines there are %d, want %d", n+1, len(w.lines), want)
		}
	}
	for n := range 1000 {
		w.add(line{At: offset(n) * offset(time.Minute), Method: listSandboxes, Same: true})
	}
	if len(w.lines) > 10 || w.size != 0 {
		t.Errorf("there are %d lines of %d bytes, want the lines of the last minutes", len(w.lines), w.size)
	}
}

// The lines that stand for the state before the window have its first time and no duration.
func TestStateBeforeTheWindowTakesNoTime(t *testing.T) {
	t.Parallel()
	w := newWindow()
	w.add(line{Took: offset(time.Minute), Method: "Version"})
	w.add(line{Node: []byte("{}")})
	w.add(line{At: offset(2 * windowSpan), Method: "Version"})
	if all := w.all(); len(all) != 3 || all[0].At != all[2].At || all[0].Took != 0 || all[1].At != all[2].At || all[1].Node == nil {
		t.Errorf("the lines are %+v, want all at the time of the last, without a duration", all)
	}
}

// A window begins with a list of all pods, never with a later list of one pod or with one that failed.
func TestListOfOnePodIsNotTheState(t *testing.T) {
	t.Parallel()
	w := newWindow()
	w.add(line{Method: listSandboxes, items: []*item{{status: "all"}}})
	w.add(line{At: offset(time.Second), Method: listSandboxes, Request: []byte("{}"), items: []*item{}})
	w.add(line{At: offset(time.Second), Method: listSandboxes, Error: &failure{Code: "Internal"}})
	w.add(line{At: offset(2 * windowSpan), Method: "Version"})
	if all := w.all(); len(all) != 2 || len(all[0].items) != 1 {
		t.Errorf("the lines are %+v, want the list of all pods first", all)
	}
}

// A status is a part of the state unless both lists are newer and contain no such container.
func TestStatusBetweenTwoLists(t *testing.T) {
	t.Parallel()
	w := newWindow()
	w.forget(line{Method: "Version"})
	w.forget(line{Node: []byte("{}")})
	for at, id := range []string{"older than both", "", "newer than one"} {
		text := fmt.Appendf(nil, `{"containerId":%q}`, id)
		w.forget(line{At: offset(at), Method: containerStatus, Request: text})
	}
	w.forget(line{At: 3, Method: listSandboxes, items: []*item{}})
	w.forget(line{At: 1, Method: listContainers, items: []*item{}})
	if _, newer := w.state[question(containerStatus, &cri.ContainerStatusRequest{ContainerId: "newer than one"})]; !newer || len(w.state) != 6 {
		t.Errorf("the state is %+v, want the version, the node, the lists and the statuses since the older one", w.state)
	}
}

// A client that does not read is one line, however many bytes wait for it.
func TestNodeIsALineWhenItChanges(t *testing.T) {
	t.Parallel()
	e := newEncoder(true)
	for n, want := range []bool{true, false, false} {
		s := pleg.Status{Details: nodestate.State{Unread: []nodestate.Unread{{Since: time.Unix(1000, 0), Bytes: n + 1}}}}
		if _, changed := e.nodeLine(0, s); changed != want {
			t.Errorf("status %d is a line: %v, want %v", n, changed, want)
		}
	}
	at := func(second int64) time.Time { return time.Unix(second, 0).UTC() }
	all := pleg.Status{
		Err:      errors.New("of Alice"),
		Troubles: []pleg.Trouble{{Cause: "disk", Problem: true, Since: at(1), Subject: "the disk", What: "is full", Detail: ": of Alice"}},
		Details: nodestate.State{
			Process: &nodestate.Process{PID: 1, Name: "containerd", State: "T"},
			Stuck:   []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web", Since: at(2), Container: "c", ID: "c0ffee", Shim: &nodestate.Process{PID: 2, Name: "conmon", State: "T"}}},
			Unread:  []nodestate.Unread{{Since: at(3), Bytes: 9, Client: &nodestate.Process{PID: 3, Name: "agent", State: "S"}}, {Since: at(4), Client: &nodestate.Process{Name: "crio"}}, {Client: &nodestate.Process{Name: "pleg-pipeline"}}},
			Disk:    &nodestate.Disk{Since: at(5), Path: "/images", Used: 99, Inodes: 7},
			Since:   nodestate.Since{Slow: at(6)},
		},
	}
	for redact, want := range map[bool]string{
		false: `{"relist":{},"stuck":[{"podUid":"u","podNamespace":"shop","podName":"web","since":"1970-01-01T00:00:02Z","shim":{"pid":2,"name":"conmon","state":"T"},"container":"c","id":"c0ffee"}],"unread":[{"since":"1970-01-01T00:00:03Z","client":{"pid":3,"name":"agent","state":"S"}},{"since":"1970-01-01T00:00:04Z","client":{"name":"crio"}},{"client":{"name":"pleg-pipeline"}}],"disk":{"since":"1970-01-01T00:00:05Z","path":"/images","used":99,"inodes":7},"troubles":[{"cause":"disk","problem":true,"since":"1970-01-01T00:00:01Z","subject":"the disk","what":"is full","detail":": of Alice"}]}`,
		true:  `{"relist":{},"stuck":[{"podUid":"WORD","podNamespace":"WORD","podName":"WORD","since":"1970-01-01T00:00:02Z","shim":{"pid":2,"name":"conmon","state":"T"},"container":"WORD","id":"WORD"}],"unread":[{"since":"1970-01-01T00:00:03Z","client":{"pid":3,"name":"WORD","state":"S"}},{"since":"1970-01-01T00:00:04Z","client":{"name":"crio"}},{"client":{"name":"pleg-pipeline"}}],"disk":{"since":"1970-01-01T00:00:05Z","path":"WORD","used":99,"inodes":7},"troubles":[{"cause":"disk","problem":true,"since":"1970-01-01T00:00:01Z","subject":"the disk","what":"is full"}]}`,
	} {
		l, _ := newEncoder(redact).nodeLine(1500*time.Millisecond, all)
		var text bytes.Buffer
		kit.Must(t, json.Compact(&text, l.Node))
		if got := regexp.MustCompile(`\br?[0-9a-f]{12,32}\b`).ReplaceAllString(text.String(), "WORD"); got != want || l.At != offset(1500*time.Millisecond) {
			t.Errorf("redacted %v: at %v %s, want %s", redact, l.At, got, want)
		}
	}
}

// A call has one redacted id, however often its line is made: the message of the client stays as it is.
func TestRequestIsRedactedInTheLineAlone(t *testing.T) {
	t.Parallel()
	request := &cri.ContainerStatusRequest{ContainerId: "of-alice"}
	e, c := newEncoder(true), &call{method: containerStatus, request: request, pending: true}
	first, second := e.line(c), e.line(c)
	if request.ContainerId != "of-alice" || string(first.Request) != string(second.Request) || strings.Contains(string(first.Request), "alice") {
		t.Errorf("the lines are %s and %s, and the message is %v", first.Request, second.Request, request)
	}
}

// The window has the beginning of a trouble and its end, after which nothing is a problem: the next file must not begin with it.
func TestEndOfATroubleIsALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		incidents, err := NewIncidents(t.TempDir(), "test")
		kit.Must(t, err)
		began := time.Now()
		stop := kit.Run(t, func(ctx context.Context) error {
			return incidents.Run(ctx, func() (s pleg.Status) {
				if time.Since(began) < 3*time.Second {
					s.Troubles = []pleg.Trouble{{Cause: "disk", Problem: true}}
				}
				return s
			}, slog.New(slog.DiscardHandler))
		})
		time.Sleep(10 * time.Second)
		_ = stop()
		var got []string
		for _, l := range incidents.window.lines {
			got = append(got, fmt.Sprint(time.Duration(l.At), bytes.Contains(l.Node, []byte("disk"))))
		}
		if want := "[1s true 3s false]"; fmt.Sprint(got) != want {
			t.Errorf("the lines are %v, want %s", got, want)
		}
	})
}

// The keys that the kubelet and Kubernetes use, the programs of a runtime, reasons and random ids stay, and nothing that is like one.
func TestRedactionKeepsExactly(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef"
	for name, test := range map[string]struct {
		matches *regexp.Regexp
		yes, no string
	}{
		"key": {
			wellKnown, "app io.kubernetes.pod.uid io.kubernetes.container.restartCount",
			"apps my-app app.alice io.kubernetes.pod. io.kubernetes.pod.a.b io.kubernetes.node.name kubernetes.io/config.file app.kubernetes.io/owner batch.kubernetes.io/alice",
		},
		"process": {ownProcess, "containerd containerd-shim crio conmon conmonrs pleg-pipeline", "crictl crio-alice alice-conmon my-containerd pleg-pipeline2"},
		"reason":  {oneWord, "Error OOMKilled A " + strings.Repeat("A", 40), "error Exit-1 E1 " + strings.Repeat("A", 41)},
		"id": {
			randomID, strings.Repeat(id, 4) + " 01234567-89ab-cdef-0123-456789abcdef",
			"alice " + strings.Repeat(id, 2) + " " + strings.Repeat(id, 4) + "0 " + strings.ToUpper(strings.Repeat(id, 4)) + " 01234567-89ab-cdef-0123-456789abcdefg x01234567-89ab-cdef-0123-456789abcdef",
		},
	} {
		for n, texts := range []string{test.no, test.yes} {
			for text := range strings.FieldsSeq(texts) {
				if test.matches.MatchString(text) != (n == 1) {
					t.Errorf("the %s %s is kept: %v, want the opposite", name, text, n == 0)
				}
			}
		}
	}
	r, other := newRedactor(), newRedactor()
	for _, text := range []string{"alice", "bob"} {
		word, id := r.word(text), r.id(text)
		if !regexp.MustCompile(`^r[0-9a-f]{12}$`).MatchString(word) || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) || word != r.word(text) || id != r.id(text) {
			t.Errorf("%s is %s or, as an id, %s, want the same word each time", text, word, id)
		}
		if word == r.word(text+"2") || id == r.id(text+"2") || word == other.word(text) || id == other.id(text) {
			t.Errorf("another text, or that of another recording, is %s or %s, too", word, id)
		}
	}
	if r.word("") != "" || r.id("") != "" {
		t.Error("a text that is not there is one")
	}
}

// TestFailedIncidentRemovesNothing writes while there is no room.
func TestFailedIncidentRemovesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	incidents, err := NewIncidents(dir, "test")
	kit.Must(t, err)
	for n := range maxIncidents {
		kit.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("incident-19990101T00000%dZ.jsonl.gz", n)), nil, 0o600))
	}
	incidents.window.add(line{At: -1, Method: listSandboxes, Answer: []byte("no JSON")}) // fails
	incidents.write(t.Context(), slog.New(slog.DiscardHandler))
	files, err := filepath.Glob(filepath.Join(dir, "*1999*"))
	if all, _ := os.ReadDir(dir); err != nil || len(files) != maxIncidents || len(all) != maxIncidents {
		t.Errorf("the folder has %v, want the %d old files", all, maxIncidents)
	}
}

// An error of the disk is an error of Flush and of Close, which closes the file all the same.
func TestFileOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, zipped := range []bool{false, true} {
		disk, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		kit.Must(t, err)
		f := &File{file: disk, buffer: bufio.NewWriter(disk)}
		if f.Output = f.buffer; zipped {
			f.Output = gzip.NewWriter(f.buffer)
		}
		if _, err := f.Write([]byte("x")); err != nil {
			t.Errorf("Write = %v, want that it waits", err)
		}
		if err := f.Flush(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Flush = %v, want that the disk is full", err)
		}
		if _, err := f.Close(); !errors.Is(err, syscall.ENOSPC) || !errors.Is(disk.Close(), os.ErrClosed) {
			t.Errorf("Close = %v, want that the disk is full, and a closed file", err)
		}
	}
}

// The file of an incident contains the calls in flight, without an answer.
func TestIncidentHasTheCallsInFlight(t *testing.T) {
	t.Parallel()
	incidents, err := NewIncidents(t.TempDir(), "test")
	kit.Must(t, err)
	incidents.began = time.Now().Add(-90 * time.Second)
	incidents.start(containerStatus, &cri.ContainerStatusRequest{ContainerId: "c"})
	var file bytes.Buffer
	kit.Must(t, incidents.save(&file))
	if text := file.String(); !regexp.MustCompile(`\n\{"at":"1m3[\d.]+s","method":"ContainerStatus","request":\{"containerId":"[0-9a-f]{32}"\},"pending":true\}\n\{"at":"1m3[\d.]+s","end":true\}\n$`).MatchString(text) {
		t.Errorf("the file is %s", text)
	}
}

// A container with text that is not UTF-8 hides no other from a recording.
func TestTextThatIsNotUTF8IsRecorded(t *testing.T) {
	t.Parallel()
	list := &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c", ImageRef: "nginx:1"}, {Id: "d"}}}
	raw, err := proto.Marshal(list)
	kit.Must(t, err)
	raw = bytes.ReplaceAll(raw, []byte("nginx:1"), []byte("nginx:\xff"))
	l := newEncoder(false).line(&call{method: listContainers, raw: raw})
	if l.Error != nil || len(l.items) != 2 || !bytes.Contains(l.items[0].text, []byte("nginx:\ufffd")) {
		t.Errorf("got %+v, want both containers", l)
	}
	if l := newEncoder(false).line(&call{method: listContainers, raw: []byte("\xff")}); l.Error == nil || l.Error.Code != "Internal" || !strings.HasPrefix(l.Error.Message, "proto:") || l.items != nil {
		t.Errorf("no list at all is %+v, want an error", l)
	}
}

// A line has the size of what no earlier line contains.
func TestSizeOfALine(t *testing.T) {
	t.Parallel()
	raw, err := proto.Marshal(&cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c"}, {Id: "d"}}})
	kit.Must(t, err)
	e := newEncoder(false)
	one, err := proto.Marshal(&cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c"}}})
	kit.Must(t, err)
	first := e.line(&call{method: listContainers, raw: raw})
	ofPod := e.line(&call{method: listContainers, request: &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: "c"}}, raw: one}) // compared with none
	again := e.line(&call{method: listContainers, raw: raw})
	answer := e.line(&call{method: containerStatus, request: &cri.ContainerStatusRequest{ContainerId: "c"}})
	node, _ := e.nodeLine(0, pleg.Status{Troubles: []pleg.Trouble{{Cause: "disk"}}})
	if texts := len(first.items[0].text) + len(first.items[1].text); first.size != 2*8+texts || again.size != 2*8 || ofPod.size != 8+len(first.items[0].text)+len(ofPod.Request) {
		t.Errorf("a list has the size %d, a list of a pod %d, and the first again %d; its items have %d bytes", first.size, ofPod.size, again.size, texts)
	}
	if answer.size != len(answer.Request)+len(answer.Answer) || len(answer.Request) == 0 || node.size != len(node.Node) {
		t.Errorf("the sizes are %d of %s%s and %d of %s", answer.size, answer.Request, answer.Answer, node.size, node.Node)
	}
}

// A list is the same as the last one if it has the same items in any order, each as often.
func TestSameLists(t *testing.T) {
	t.Parallel()
	x, y := &item{text: []byte(`{"id":"x"}`)}, &item{text: []byte(`{"id":"y"}`)}
	for _, tt := range []struct {
		first, second []*item
		same          bool
	}{{[]*item{x, y}, []*item{y, x}, true}, {[]*item{x, y}, []*item{x}, false}, {[]*item{x}, []*item{x, y}, false}, {[]*item{x, x, y}, []*item{x, x, x}, false}} {
		var out bytes.Buffer
		w := newWriter(&out)
		kit.Must(t, w.write(line{Method: listSandboxes, items: tt.first}))
		kit.Must(t, w.write(line{Method: listSandboxes, items: tt.second}))
		if same := strings.Contains(out.String(), `"same":true`); same != tt.same {
			t.Errorf("the same: %v, want %v:\n%s", same, tt.same, &out)
		}
	}
}

// A list with a filter is whole, and the next full list is compared with the full list before.
func TestListOfAPodIsWhole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w, items := newWriter(&out), []*item{{text: []byte(`{"id":"x"}`)}, {text: []byte(`{"id":"y"}`)}, {text: []byte(`{"id":"z"}`)}}
	for _, l := range []line{
		{items: items[:2]}, {Request: []byte(`{"of":1}`), items: items[1:2]}, {items: items[:2]}, {items: items[1:]}, {At: 1, items: items[2:]},
	} {
		l.Method = listSandboxes
		kit.Must(t, w.write(l))
	}
	const want = `{"at":"0s","method":"ListPodSandbox","list":[{"id":"x"},{"id":"y"}]}
{"at":"0s","method":"ListPodSandbox","request":{"of":1},"list":[{"id":"y"}]}
{"at":"0s","method":"ListPodSandbox","same":true}
{"at":"0s","method":"ListPodSandbox","list":[1,{"id":"z"}]}
{"at":"0s","method":"ListPodSandbox","list":[1]}
`
	if out.String() != want {
		t.Errorf("got\n%s, want\n%s", &out, want)
	}
}

// Two lists are of one round if the second began before the first had ended. A round whose lists are as before is left out.
func TestRounds(t *testing.T) {
	t.Parallel()
	x, y := &cri.ListPodSandboxResponse{}, &cri.ListContainersResponse{}
	list := func(method string, at, took time.Duration, c call) *call {
		c.method, c.at, c.took = method, at, took
		return &c
	}
	const s, c = listSandboxes, listContainers
	for name, tt := range map[string]struct {
		calls []*call
		want  string
	}{
		"at once":            {[]*call{list(s, 0, 5, call{reply: x}), list(c, 0, 7, call{reply: y})}, "0: 0 0;"},
		"at the end":         {[]*call{list(s, 0, 5, call{reply: x}), list(c, 5, 7, call{reply: y})}, "0: 0 5;"},
		"after the end":      {[]*call{list(s, 0, 5, call{reply: x}), list(c, 6, 7, call{reply: y})}, "0: 0 -1; 6: 0 6;"},
		"twice of a kind":    {[]*call{list(s, 0, 9, call{reply: x}), list(s, 3, 7, call{reply: &cri.ListPodSandboxResponse{}})}, "0: 0 -1; 3: 3 -1;"},
		"the same":           {[]*call{list(s, 0, 5, call{reply: x}), list(s, 9, 5, call{reply: x})}, "0: 0 -1;"},
		"the same error":     {[]*call{list(s, 0, 5, call{err: errors.New("e")}), list(s, 9, 5, call{err: errors.New("e")})}, "0: 0 -1;"},
		"another error":      {[]*call{list(s, 0, 5, call{err: errors.New("e")}), list(s, 9, 5, call{err: errors.New("f")})}, "0: 0 -1; 9: 9 -1;"},
		"an error, then not": {[]*call{list(s, 0, 5, call{err: errors.New("e")}), list(s, 9, 5, call{})}, "0: 0 -1; 9: 9 -1;"},
		"an error later":     {[]*call{list(s, 0, 5, call{}), list(s, 9, 5, call{err: errors.New("e")})}, "0: 0 -1; 9: 9 -1;"},
		"a hang":             {[]*call{list(s, 0, 5, call{}), list(s, 9, 5, call{pending: true})}, "0: 0 -1; 9: 9 -1;"},
		"after a hang":       {[]*call{list(s, 0, 5, call{pending: true}), list(s, 9, 5, call{})}, "0: 0 -1; 9: 9 -1;"},
	} {
		answers, got := make(map[string][]*call), ""
		for _, c := range tt.calls {
			answers[c.method] = append(answers[c.method], c)
		}
		for _, r := range newRounds(answers) {
			got += fmt.Sprintf(" %d:", r.at)
			for _, c := range r.lists {
				if c == nil {
					c = &call{at: -1}
				}
				got += fmt.Sprintf(" %d", c.at)
			}
			got += ";"
		}
		if got != " "+tt.want {
			t.Errorf("%s: got%s, want %s", name, got, tt.want)
		}
	}
}

// The lists of sandboxes and of containers that a client asks for are of one round, also if the next is due.
func TestListsOfOneRound(t *testing.T) {
	t.Parallel()
	lists := func(at time.Duration) round { return round{at, [2]*call{{at: at}, {at: at}}} }
	s := NewServer(&Recording{rounds: []round{lists(0), lists(100 * time.Millisecond), lists(200 * time.Millisecond)}})
	for n := range 3 {
		sandboxes, containers := s.choose(listSandboxes, &cri.ListPodSandboxRequest{}), s.choose(listContainers, &cri.ListContainersRequest{})
		if want := time.Duration(n) * 100 * time.Millisecond; sandboxes.at != want || containers.at != want {
			t.Errorf("round %d has lists of %v and %v", n, sandboxes.at, containers.at)
		}
	}
}

// A replay returns each error that a runtime can return.
func TestCodes(t *testing.T) {
	t.Parallel()
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		failed, err := (&failure{code.String(), "why"}).status()
		if s := status.Convert(failed); err != nil || s.Code() != code || s.Message() != "why" {
			t.Errorf("%v is replayed as %v, %v", code, failed, err)
		}
	}
}

// A replayed call takes its time, also if it fails, and hangs if it had no answer.
func TestCallsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for name, tt := range map[string]struct {
			call
			takes time.Duration
			want  error
		}{
			"an answer":          {call{at: time.Second, took: 2 * time.Second}, 3 * time.Second, nil},
			"an error":           {call{took: 2 * time.Second, err: broken}, 2 * time.Second, broken},
			"no answer":          {call{took: 2 * time.Second, pending: true}, time.Minute, context.DeadlineExceeded},
			"given up meanwhile": {call{took: time.Hour}, time.Minute, context.DeadlineExceeded},
		} {
			s, began := NewServer(new(Recording)), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := s.play(ctx, &tt.call); !errors.Is(err, tt.want) || time.Since(began) != tt.takes {
				t.Errorf("%s: %v after %v, want %v after %v", name, err, time.Since(began), tt.want, tt.takes)
			}
			cancel()
		}
	})
}

// The node's problems of the present time come with those that the program knows, and with their recorded age.
func TestReportOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(zero time.Time, n int) pleg.Report {
			since := func(minutes int) time.Time { return zero.Add(time.Duration(minutes) * time.Minute) }
			return pleg.Report{
				Troubles: []pleg.Trouble{{Cause: fmt.Sprint("trouble ", n), Since: since(-n)}, {Cause: "other", Since: since(1)}},
				Details: nodestate.State{
					Stuck:  []nodestate.Stuck{{UID: "u", Since: since(2 + n)}, {UID: "v", Since: since(3)}},
					Unread: []nodestate.Unread{{Bytes: n, Since: since(4 + n)}, {Bytes: 9, Since: since(5)}},
					Disk:   &nodestate.Disk{Path: "/p", Used: float64(n), Since: since(6 + n)},
				},
			}
		}
		began := time.Unix(1000, 0)
		s := NewServer(&Recording{Header: Header{Began: began}, nodes: []nodeState{{0, at(began, 1)}, {time.Hour, at(began, 2)}, {3 * time.Hour, pleg.Report{}}}})
		zero := time.Now()
		for _, n := range []int{1, 2} {
			own := pleg.Report{Endpoint: "replay:", Troubles: []pleg.Trouble{{Cause: "own", Since: zero}}, Details: nodestate.State{
				Process: &nodestate.Process{PID: 7}, Stuck: []nodestate.Stuck{{UID: "own"}}, Unread: []nodestate.Unread{{Bytes: 8}},
			}}
			want, got := at(zero, n), own
			want.Endpoint, want.Troubles = own.Endpoint, append(own.Troubles, want.Troubles...)
			nodestate.Change(&want.Details, func(all *nodestate.State) {
				mine := nodestate.Of(own.Details)
				all.Process, all.Stuck, all.Unread = mine.Process, append(mine.Stuck, all.Stuck...), append(mine.Unread, all.Unread...)
			})
			if s.Report(&got); !reflect.DeepEqual(got, want) {
				t.Errorf("after %v:\n%+v, want\n%+v", time.Since(zero), got, want)
			}
			time.Sleep(time.Hour)
		}
		time.Sleep(time.Hour)
		var got pleg.Report
		if s.Report(&got); !reflect.DeepEqual(got, pleg.Report{Details: nodestate.State{}}) {
			t.Errorf("after the problems: %+v, want none", got)
		}
	})
}

// A recording has been played half a second after its end, or never if ctx ends before.
func TestWaitPlayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began, ended := NewServer(&Recording{Length: 3 * time.Second}), time.Now(), errors.New("ended")
		for _, tt := range []struct{ limit, takes time.Duration }{{time.Second, time.Second}, {2200 * time.Millisecond, 3200 * time.Millisecond}, {time.Minute, 3500 * time.Millisecond}} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), tt.limit, ended)
			if err := s.WaitPlayed(ctx); time.Since(began) != tt.takes || (tt.limit < time.Minute) != errors.Is(err, ended) {
				t.Errorf("within %v: %v after %v, want the end after %v", tt.limit, err, time.Since(began), tt.takes)
			}
			cancel()
			if tt.limit > time.Second {
				s, began = NewServer(&Recording{Length: 3 * time.Second}), time.Now()
			}
		}
	})
}

// A file that cannot be removed keeps no other, and the log says so.
func TestOldestIncidentsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	incidents, err := NewIncidents(dir, "test")
	kit.Must(t, err)
	kit.Must(t, os.MkdirAll(filepath.Join(dir, "incident-19980101T000000Z.jsonl.gz", "kept"), 0o700))
	for n := range maxIncidents + 1 {
		kit.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("incident-19990101T00000%dZ.jsonl.gz", n)), nil, 0o600))
	}
	log := new(kit.Log)
	incidents.write(t.Context(), log.Logger())
	if all, _ := filepath.Glob(filepath.Join(dir, "incident-*")); len(all) != maxIncidents+1 || !strings.HasSuffix(all[1], "02Z.jsonl.gz") {
		t.Errorf("the files are %q, want the newest %d and the folder", all, maxIncidents)
	}
	log.RequireLines(t, 1, `level=WARN msg="recorded the minutes before a problem" file=`+dir+"/incident-2")
	log.RequireLines(t, 1, `level=ERROR msg="cannot remove the oldest recordings" file=`+dir)
	log.RequireLines(t, 1, "directory not empty")
}

// A client that lists late gets the answers that were given before the list it has not asked for.
func TestClockWaitsForALateList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		request := &cri.ContainerStatusRequest{ContainerId: "c"}
		before, after := &call{at: 500 * time.Millisecond}, &call{at: 1500 * time.Millisecond}
		s := NewServer(&Recording{
			rounds:  []round{{at: 0}, {at: time.Second}},
			answers: map[string][]*call{question("ContainerStatus", request): {before, after}},
		})
		for round, want := range []*call{before, after} {
			s.choose(listSandboxes, &cri.ListPodSandboxRequest{})
			s.choose(listContainers, &cri.ListContainersRequest{})
			time.Sleep(time.Minute)
			if got := s.choose("ContainerStatus", request); got != want {
				t.Errorf("after list %d: the answer of %v, want that of %v", round, got.at, want.at)
			}
		}
	})
}

// A client that lists early, and asks twice, gets no answer of a later list.
func TestEarlyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Read(t.Context(), strings.NewReader(`{"format":"pleg-pipeline recording","version":3,"began":"2026-01-02T03:04:05Z"}
{"at":"10s","method":"ListContainers","list":[{"id":"a","labels":{"io.kubernetes.pod.uid":"u"}}]}
{"at":"12s","method":"ContainerStatus","request":{"containerId":"a"},"error":{"code":"NotFound"}}
{"at":"11s","method":"ContainerStatus","request":{"containerId":"a"},"error":{"code":"Internal"}}
{"at":"12s","method":"ListContainers","list":[{"id":"a","labels":{"io.kubernetes.pod.uid":"u"}},{"id":"b"}]}
{"at":"11.9s","method":"ListContainers","request":{"filter":{"labelSelector":{"io.kubernetes.pod.uid":"u"}}},"list":[]}
`))
		kit.Must(t, err)
		if want := time.Date(2026, 1, 2, 3, 4, 15, 0, time.UTC); !r.Header.Began.Equal(want) {
			t.Errorf("it began %v, want the time of the first call, %v", r.Header.Began, want)
		}
		s := NewServer(r)
		s.choose(listContainers, &cri.ListContainersRequest{})
		for range 2 { // the second answer is of the time of the next list
			if answer := s.choose(containerStatus, &cri.ContainerStatusRequest{ContainerId: "a"}); answer == nil || status.Code(answer.err) != codes.Internal {
				t.Errorf("the answer is %+v, want the one of 11 s", answer)
			}
		}
		for i, wait := range []time.Duration{1499 * time.Millisecond, time.Millisecond} { // up to half a second early
			time.Sleep(wait)
			if n := itemsOf(s.choose(listContainers, &cri.ListContainersRequest{}).reply).Len(); n != i+1 {
				t.Errorf("the list has %d containers, want %d: the list of the pod is older than the second", n, i+1)
			}
		}
	})
}

// A status that came with its sandbox is an answer of that time.
func TestCarriedStatusHasItsTime(t *testing.T) {
	t.Parallel()
	r, err := Read(t.Context(), strings.NewReader(`{"format":"pleg-pipeline recording","version":3}
{"at":"0s","method":"Version","answer":{}}
{"at":"7s","took":"2s","method":"PodSandboxStatus","request":{"podSandboxId":"s"},"answer":{"containersStatuses":[{"id":"c"},{"id":"d"}]}}
`))
	kit.Must(t, err)
	for _, id := range []string{"c", "d"} {
		all := r.answers[question(containerStatus, &cri.ContainerStatusRequest{ContainerId: id})]
		if len(all) != 1 || all[0].at != 7*time.Second || all[0].took != 0 || all[0].reply.(*cri.ContainerStatusResponse).GetStatus().GetId() != id {
			t.Errorf("the answers about %s are %+v, want one after 7s", id, all)
		}
	}
}

// A client that is as fast as the recorded one gets the newest answer; one that asks more often gets the next, and at last the
// last one again.
func TestAnswersComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `{"format":"pleg-pipeline recording","version":3}` + "\n"
		for _, at := range []string{"0s", "1s", "2s", "4s", "5s", "6s", "7s"} {
			text += `{"at":"` + at + `","method":"Version","answer":{"version":"of ` + at + `"}}` + "\n"
		}
		r, err := Read(t.Context(), strings.NewReader(text))
		kit.Must(t, err)
		answers := func(waits ...time.Duration) string {
			s := NewServer(r)
			var got []string
			for _, wait := range waits {
				time.Sleep(wait)
				got = append(got, s.choose("Version", &cri.VersionRequest{}).reply.(*cri.VersionResponse).GetVersion())
			}
			return strings.Join(got, ", ")
		}
		got := answers(0, time.Second, 500*time.Millisecond, 2500*time.Millisecond, time.Second, 0, 0, 0)
		if want := "of 0s, of 1s, of 2s, of 4s, of 5s, of 6s, of 7s, of 7s"; got != want {
			t.Errorf("the answers are %q, want %q", got, want)
		}
		if got, want := answers(2*time.Second, 3500*time.Millisecond), "of 2s, of 5s"; got != want {
			t.Errorf("a client that asks seldom gets the answers %q, want %q", got, want)
		}
	})
}

// The clock stands still until the client asks for a list. The first may have come late.
func TestClockWaitsForLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofPod := &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: map[string]string{labelPodUID: "u"}}}
		if answer := NewServer(new(Recording)).choose(listContainers, ofPod); answer != nil {
			t.Errorf("a recording without a list has the list of a pod %+v", answer)
		}
		r, err := Read(t.Context(), strings.NewReader(`{"format":"pleg-pipeline recording","version":3}
{"at":"0s","method":"Version","answer":{"version":"first"}}
{"at":"2s","method":"ListContainers","list":[{"id":"a"}]}
{"at":"3s","method":"Version","answer":{"version":"second"}}
{"at":"5s","method":"Version","answer":{"version":"third"}}
{"at":"9s","method":"ListContainers","error":{"code":"Internal"}}
`))
		kit.Must(t, err)
		ask := func(s *Server) string {
			return s.choose("Version", &cri.VersionRequest{}).reply.(*cri.VersionResponse).GetVersion()
		}
		for _, late := range []time.Duration{0, time.Hour} {
			s := NewServer(r)
			time.Sleep(late)
			if answer := s.choose(listContainers, &cri.ListContainersRequest{}); answer == nil || answer.at != 2*time.Second {
				t.Fatalf("the first list is %+v", answer)
			}
			if answer := s.choose(listContainers, ofPod); answer == nil || answer.at != 2*time.Second {
				t.Errorf("the list of a pod is %+v, want one of the time of the first list", answer)
			}
			time.Sleep(1500 * time.Millisecond)
			if late > 0 && ask(s) != "second" {
				t.Errorf("after a list that came %v late the version is not the one of its time", late)
			}
			time.Sleep(10 * time.Hour)
			if got := ask(s); got != "third" {
				t.Errorf("the version is the %s", got)
			}
			for _, request := range []*cri.ListContainersRequest{{}, ofPod} {
				if answer := s.choose(listContainers, request); answer == nil || status.Code(answer.err) != codes.Internal {
					t.Errorf("the list %v is %+v, want the error of the last list", request, answer)
				}
			}
		}
	})
}

// TestListsOfOnePodAreInLists contains the lists of a pod that was removed since the full list, and of one that is new:
// later lists do not contain the first, and contain the second.
func TestListsOfOnePodAreInLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Read(t.Context(), strings.NewReader(`{"format":"pleg-pipeline recording","version":3}
{"at":"0s","took":"2s","method":"ListContainers","list":[{"id":"a","labels":{"io.kubernetes.pod.uid":"gone"}},{"id":"b","labels":{"io.kubernetes.pod.uid":"left"}}]}
{"at":"1s","method":"ListContainers","request":{"filter":{"labelSelector":{"io.kubernetes.pod.uid":"gone"}}},"list":[]}
{"at":"1s","method":"ListContainers","request":{"filter":{"id":"c"}},"list":[{"id":"c"}]}
{"at":"1s","method":"ListContainers","request":{"filter":{"labelSelector":{"io.kubernetes.pod.uid":"new"}}},"list":[{"id":"n","labels":{"io.kubernetes.pod.uid":"new"}}]}
`))
		kit.Must(t, err)
		s := NewServer(r)
		other := &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: "c"}} // another filter gets what was recorded
		if n := itemsOf(s.choose(listContainers, other).reply).Len(); n != 1 {
			t.Errorf("the list of a container has %d, want 1", n)
		}
		for _, wants := range [][4]int{{2, 1, 1, 0}, {2, 0, 1, 1}, {2, 0, 1, 1}} {
			for i, pod := range []string{"", "gone", "left", "new"} {
				request := &cri.ListContainersRequest{}
				if pod != "" {
					request.Filter = &cri.ContainerFilter{LabelSelector: map[string]string{labelPodUID: pod}}
				}
				answer := s.choose(listContainers, request)
				if n := itemsOf(answer.reply).Len(); n != wants[i] || answer.took != 2*time.Second || answer.at != 0 {
					t.Errorf("the list of pod %q has %d containers, at %v in %v, want %d as long as the list of all", pod, n, answer.at, answer.took, wants[i])
				}
			}
			time.Sleep(1500 * time.Millisecond)
		}
	})
}
