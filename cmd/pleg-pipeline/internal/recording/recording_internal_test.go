package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	for at, id := range []string{"older than both", "", "newer than one"} {
		text := fmt.Appendf(nil, `{"containerId":%q}`, id)
		w.forget(line{At: offset(at), Method: containerStatus, Request: text})
	}
	w.forget(line{At: 3, Method: listSandboxes, items: []*item{}})
	w.forget(line{At: 1, Method: listContainers, items: []*item{}})
	if _, newer := w.state[question(containerStatus, &cri.ContainerStatusRequest{ContainerId: "newer than one"})]; !newer || len(w.state) != 4 {
		t.Errorf("the state is %+v, want the lists and the statuses since the older one", w.state)
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
	for _, redact := range []bool{false, true} {
		l, _ := newEncoder(redact).nodeLine(0, pleg.Status{Troubles: []pleg.Trouble{{Cause: "disk", What: "is full", Detail: ": of Alice"}}})
		if text := string(l.Node); strings.Contains(text, "Alice") == redact || strings.Contains(text, `"detail"`) == redact || !strings.Contains(text, "is full") {
			t.Errorf("redacted %v: %s", redact, text)
		}
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

// The file of an incident contains the calls in flight, without an answer.
func TestIncidentHasTheCallsInFlight(t *testing.T) {
	t.Parallel()
	incidents, err := NewIncidents(t.TempDir(), "test")
	kit.Must(t, err)
	incidents.start(containerStatus, &cri.ContainerStatusRequest{ContainerId: "c"})
	var file bytes.Buffer
	kit.Must(t, incidents.save(&file))
	if text := file.String(); !strings.Contains(text, `"method":"ContainerStatus"`) || !strings.Contains(text, `"pending":true`) {
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
}

// A line has the size of what no earlier line contains.
func TestSizeOfALine(t *testing.T) {
	t.Parallel()
	raw, err := proto.Marshal(&cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c"}, {Id: "d"}}})
	kit.Must(t, err)
	e := newEncoder(false)
	first, again := e.line(&call{method: listContainers, raw: raw}), e.line(&call{method: listContainers, raw: raw})
	answer := e.line(&call{method: containerStatus, request: &cri.ContainerStatusRequest{ContainerId: "c"}})
	node, _ := e.nodeLine(0, pleg.Status{Troubles: []pleg.Trouble{{Cause: "disk"}}})
	if texts := len(first.items[0].text) + len(first.items[1].text); first.size < texts || again.size == 0 || again.size >= texts {
		t.Errorf("a list has the size %d, and again %d; its items have %d bytes", first.size, again.size, texts)
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
		began := time.Unix(1000, 0)
		trouble := func(cause string, since time.Time) pleg.Report {
			return pleg.Report{Troubles: []pleg.Trouble{{Cause: cause, Since: since}}}
		}
		s := NewServer(&Recording{Header: Header{Began: began}, nodes: []nodeState{
			{0, trouble("first", began.Add(-time.Minute))}, {time.Hour, trouble("second", began.Add(time.Hour))},
		}})
		zero := time.Now()
		for want, since := range []time.Time{zero.Add(-time.Minute), zero.Add(time.Hour)} {
			r := trouble("own", zero)
			s.Report(&r)
			if len(r.Troubles) != 2 || r.Troubles[0].Cause != "own" || r.Troubles[1].Cause != []string{"first", "second"}[want] || !r.Troubles[1].Since.Equal(since) {
				t.Errorf("after %v: %+v, want a trouble since %v", time.Since(zero), r.Troubles, since)
			}
			time.Sleep(time.Hour)
		}
	})
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
		time.Sleep(1700 * time.Millisecond)
		if n := itemsOf(s.choose(listContainers, &cri.ListContainersRequest{}).reply).Len(); n != 2 {
			t.Errorf("the list has %d containers, want 2: the list of the pod is older", n)
		}
	})
}

// TestListsOfOnePodAreInLists contains the list of a pod that was removed since the full list:
// later lists do not contain it.
func TestListsOfOnePodAreInLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Read(t.Context(), strings.NewReader(`{"format":"pleg-pipeline recording","version":3}
{"at":"0s","method":"ListContainers","list":[{"id":"a","labels":{"io.kubernetes.pod.uid":"gone"}},{"id":"b","labels":{"io.kubernetes.pod.uid":"left"}}]}
{"at":"1s","method":"ListContainers","request":{"filter":{"labelSelector":{"io.kubernetes.pod.uid":"gone"}}},"list":[]}
`))
		kit.Must(t, err)
		s := NewServer(r)
		for _, wants := range [][3]int{{2, 1, 1}, {1, 0, 1}} {
			for i, pod := range []string{"", "gone", "left"} {
				request := &cri.ListContainersRequest{}
				if pod != "" {
					request.Filter = &cri.ContainerFilter{LabelSelector: map[string]string{labelPodUID: pod}}
				}
				if n := itemsOf(s.choose(listContainers, request).reply).Len(); n != wants[i] {
					t.Errorf("the list of pod %q has %d containers, want %d", pod, n, wants[i])
				}
			}
			time.Sleep(1500 * time.Millisecond)
		}
	})
}
