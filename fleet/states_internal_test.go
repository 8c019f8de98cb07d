package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// newTestStates returns the states of a cluster with nodes in each condition, as they are at a time.
func newTestStates(at time.Time) *States {
	info := jetstream.StreamInfo{TimeStamp: at}
	stream, bucket := &memoryStream{info: info}, &memoryStream{info: info}
	lease := func(node string, of agentState) {
		of.Layout = layout
		bucket.add(leasePrefix+nodeKey("c", node), encode(of))
	}
	tell := func(node string, k kind) {
		stream.add(nodeSubject("c", node), encode(newMessage("", k, &pleg.Event{Epoch: "e", Seq: 1, ObservedAt: at})))
	}
	pod := func(node, namespace string, uid pleg.PodUID, removed ...pleg.ContainerID) {
		r := newRecord(uid, string(uid), namespace)
		ev := pleg.Event{Epoch: "e", Seq: 1, PodUID: uid, PodName: string(uid), PodNamespace: namespace, ContainerID: "x", Type: pleg.ContainerStarted, ObservedAt: at}
		for r.apply(&ev); len(removed) > 0; removed = removed[1:] {
			r.apply(&pleg.Event{Type: pleg.ContainerRemoved, ContainerID: removed[0]})
		}
		body, _ := r.encode(newMessage("", ofState, &ev), 1<<20)
		stream.add(podSubject("c", node, uid), body)
	}
	hangs := []Finding{{PodUID: "a", What: "fails"}, {PodUID: "never", Pod: "shop/never-inspected", What: "is slow"}, {PodUID: "b", What: "hangs"}}
	lease("works", agentState{Agent: "a", CurrentAsOf: at, health: health{Verdict: &Verdict{Severity: verdict.OK}, Pods: hangs}})
	tell("works", ofSynced)
	pod("works", "shop", "a")
	pod("works", "jobs", "b")
	pod("works", "jobs", "well")
	pod("works", "jobs", "gone", "x")
	pod("works", "jobs", "gone-again")
	pod("works", "jobs", "gone-again", "x")
	stream.add(podSubject("c", "works", "garbage"), []byte("garbage"))
	stream.add(podSubject("c", "works", "odd"), []byte(`{"data":{"podUID":"odd","podName":"odd","pod":{}}}`)) // without an epoch
	lease("began", agentState{Agent: "a"})
	lease("begins", agentState{Agent: "a"})
	tell("begins", ofGap)
	lease("stopped", agentState{Ended: true})
	tell("stopped", ofGap)
	lease("stopped-and-purged", agentState{Ended: true})
	lease("expired", agentState{Agent: "a"})
	tell("expired", ofSynced)
	bucket.held[len(bucket.held)-1].Time = at.Add(-time.Minute)
	pod("nowhere", "shop", "y")
	tell("no-agent", ofSynced)
	pod("no-agent", "shop", "z")
	tell("forgotten", ofGone)
	stream.whole = true
	return &States{&store{patience: thorough, js: fakeJetStream{stream: bucket}, stream: stream}, "c"}
}

// The nodes are those that have published or whose agent runs, in the order of their names.
func TestNodes(t *testing.T) {
	at := time.Unix(1000, 0)
	nodes, err := newTestStates(at).Nodes(t.Context())
	kit.Must(t, err)
	var got []string
	for _, n := range nodes {
		says := ""
		if n.Verdict != nil && len(n.Verdict.Findings) > 0 {
			if says = n.Verdict.Findings[0].What; !n.Verdict.Findings[0].Since.Equal(n.LastSeen) {
				t.Errorf("%s %s since %v, want %v", n.Name, says, n.Verdict.Findings[0].Since, n.LastSeen)
			}
		}
		got = append(got, fmt.Sprintf("%s %q %v %v %s", n.Name, n.Agent, at.Sub(n.LastSeen), n.Silent, says))
	}
	if want := []string{
		`began "a" 0s false `, `begins "a" 0s true has not published the states of all its pods`, `expired "" 1m0s true has no agent`, `no-agent "" 0s true has no agent`,
		`stopped "" 0s true was stopped`, `works "a" 0s false `,
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The pods of some nodes and namespaces, each with its problem or that of its node: also one that was never inspected.
func TestPods(t *testing.T) {
	states := newTestStates(time.Unix(1000, 0))
	for _, tt := range []struct {
		nodes, namespaces []string
		want              string
	}{
		{nil, nil, "jobs/b works hangs, jobs/well works , shop/a works fails, shop/never-inspected works is slow, shop/z no-agent has no agent"},
		{nil, []string{"jobs", "none"}, "jobs/b works hangs, jobs/well works "},
		{[]string{"no-agent"}, nil, "shop/z no-agent has no agent"},
		{[]string{"works"}, []string{"shop"}, "shop/a works fails, shop/never-inspected works is slow"},
	} {
		var got []string
		for pod, err := range states.Pods(t.Context(), tt.nodes, tt.namespaces) {
			kit.Must(t, err)
			if pod.Silent != (pod.Node == "no-agent") || string(pod.UID) != map[bool]string{true: "never", false: pod.Name}[pod.Name == "never-inspected"] {
				t.Errorf("%s with the UID %s is silent: %v", pod.Name, pod.UID, pod.Silent)
			}
			got = append(got, fmt.Sprintf("%s/%s %s %s", pod.Namespace, pod.Name, pod.Node, cmp.Or(pod.Finding, new(Finding)).What))
		}
		if slices.Sort(got); strings.Join(got, ", ") != tt.want {
			t.Errorf("of the nodes %q and the namespaces %q: %q, want %q", tt.nodes, tt.namespaces, got, tt.want)
		}
	}
	for _, err := range states.Pods(t.Context(), nil, nil) {
		kit.Must(t, err)
		break // the loop can be left
	}
	if stream, bucket := states.stream.(*memoryStream), states.js.(fakeJetStream).stream; stream.left()+bucket.left() > 0 {
		t.Errorf("%d consumers are left of the stream, and %d of the bucket", stream.left(), bucket.left())
	}
}

// A node that is forgotten leaves one message. What cannot be forgotten is an error.
func TestForget(t *testing.T) {
	states := newTestStates(time.Unix(1000, 0))
	stream := states.stream.(*memoryStream)
	states.js = memoryServer{stream: stream, bucket: states.js.(fakeJetStream).stream, conn: new(nats.Conn)}
	states.js.(memoryServer).bucket.info.Config.Name = "KV_pleg-agents"
	kit.Must(t, states.Forget(t.Context(), "no-agent"))
	m, err := decode(stream.held[len(stream.held)-1].Data)
	if kit.Must(t, err); stream.newest("pleg.v2.c.no-agent.>") != stream.held[len(stream.held)-1] || m.kind != ofGone || m.ObservedAt.IsZero() || !strings.Contains(string(m.body), `"source":"/clusters/c/nodes/no-agent"`) {
		t.Errorf("it leaves %s", m.body)
	}
	stream.stuck = errors.New("no disk")
	for node, want := range map[string]string{
		"": "node must not be empty", strings.Repeat("n", 254): "node has 254 bytes, the limit is 253", "works": "forget node works: not connected to : an agent publishes as this node: a", "wroks": `node "wroks" of cluster "c" has not published`,
		"stopped": "forget node stopped: not connected to : no disk",
	} {
		before := len(stream.held)
		if err := states.Forget(t.Context(), node); fmt.Sprint(err) != want || errors.Is(err, stream.stuck) != (node == "stopped") || node == "works" && len(stream.held) != before {
			t.Errorf("Forget(%q) = %v, want %s", node, err, want)
		}
	}
	stream.stuck, stream.full = nil, errors.New("no room")
	if err := states.Forget(t.Context(), "stopped"); fmt.Sprint(err) != "forget node stopped: not connected to : no room" {
		t.Errorf("Forget() = %v of a stream that is full", err)
	}
	stream.err = errors.New("broken")
	if err := states.Forget(t.Context(), "wroks"); fmt.Sprint(err) != "forget node wroks: not connected to : stream: not connected to : broken" {
		t.Errorf("Forget() = %v of a server that fails", err)
	}
	states.js.(memoryServer).bucket.info.Config.Name = ""
	if nodes, err := states.Nodes(t.Context()); nodes != nil || !errors.Is(err, jetstream.ErrStreamNotFound) || err.Error() != "bucket pleg-agents: "+jetstream.ErrStreamNotFound.Error() {
		t.Errorf("without a bucket the nodes are %+v, %v", nodes, err)
	}
}

// A name that nobody has published is probably wrong.
func TestCheck(t *testing.T) {
	states := newTestStates(time.Unix(1000, 0))
	of := func(bucket *memoryStream) *States {
		return &States{&store{patience: thorough, js: fakeJetStream{stream: bucket}, stream: new(memoryStream)}, "c"}
	}
	cause := errors.New("broken")
	empty, broken, half := of(new(memoryStream)), of(&memoryStream{err: cause}), of(new(memoryStream))
	half.stream = &memoryStream{err: errors.New("broken")}
	for _, tt := range []struct {
		of    *States
		nodes []string
		want  string
	}{
		{states, nil, "<nil>"},
		{states, []string{"works", "no-agent"}, "<nil>"},
		{states, []string{"works", "wroks"}, `node "wroks" of cluster "c" has not published`},
		{states, []string{"forgotten"}, `node "forgotten" of cluster "c" has not published`},
		{empty, nil, `no node of cluster "c" has published`},
		{broken, []string{"works"}, "bucket pleg-agents: stream: not connected to : broken"},
		{broken, nil, "bucket pleg-agents: stream: not connected to : broken"},
		{half, nil, "stream: not connected to : broken"},
	} {
		if got := fmt.Sprint(tt.of.Check(t.Context(), tt.nodes)); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.nodes, got, tt.want)
		}
	}
	var got error
	for _, err := range broken.Pods(t.Context(), nil, nil) {
		got = err
	}
	if want := "read the pods: bucket pleg-agents: stream: not connected to : broken"; !errors.Is(got, cause) || got.Error() != want {
		t.Errorf("the pods of a server that fails: %v, want %s", got, want)
	}
	if nodes, err := half.Nodes(t.Context()); err == nil {
		t.Errorf("the nodes of a server that fails are %v", nodes)
	}
	if _, _, err := half.Size(t.Context()); err == nil {
		t.Error("a server that fails tells the size")
	}
}

// What the value of an agent says about its node.
func TestNodeOfAnAgent(t *testing.T) {
	at, listed := time.Unix(1000, 0), time.Unix(900, 0).UTC() // as it is read
	whole := agentState{Layout: 2, Agent: "a", CurrentAsOf: listed, Fault: &fault{listed, "no room"}, Ended: true, health: health{new(Verdict), make([]Finding, 1)}}
	const begins = `{"layout":2,"agent":"a","currentAsOf":"1970-01-01T00:15:00Z","fault":{"since":"1970-01-01T00:15:00Z","why":"no room"},"ended":true,"verdict":{`
	if text := string(encode(whole)); !strings.HasPrefix(text, begins) || !strings.Contains(text, `},"pods":[{`) {
		t.Errorf("the lease is %s, want %s", text, begins)
	}
	for name, tt := range map[string]struct {
		value    agentState
		agent    string
		known    time.Time
		severity verdict.Severity
		says     Finding
	}{
		"it works":         {agentState{Layout: 2, Agent: "a", CurrentAsOf: listed, health: health{Verdict: &Verdict{Severity: verdict.OK}}}, "a", listed, verdict.OK, Finding{}},
		"it has ended":     {agentState{Layout: layout, Agent: "a", Ended: true}, "", time.Time{}, verdict.Warning, Finding{What: "was stopped", Since: at, Advice: verdict.NodeSilent.Advice()}},
		"an older version": {agentState{Agent: "a", CurrentAsOf: at}, "a", time.Time{}, verdict.Problem, Finding{What: "publishes in the layout of an older version: update its agent", Advice: verdict.NodeSilent.Advice()}},
		"it cannot publish": {agentState{Layout: layout, Agent: "a", CurrentAsOf: at, Fault: &fault{listed, "no room"}}, "a", time.Time{}, verdict.Problem, Finding{
			What: "cannot publish", Since: listed, Detail: ": no room",
			Advice: "look at the stream and its servers (nats stream report); if the stream is full, make it larger (nats stream edit --max-bytes)",
		}},
	} {
		n := nodeIn(&jetstream.RawStreamMsg{Subject: leasePrefix + nodeKey("c", "n.1"), Time: at, Data: encode(tt.value)}, at)
		if n.Name != "n.1" || n.Agent != tt.agent || !n.LastSeen.Equal(at) || !n.CurrentAsOf.Equal(tt.known) || n.Silent == (tt.severity == verdict.OK) ||
			n.Verdict == nil || n.Verdict.Severity != tt.severity || len(n.Verdict.Findings) > 1 {
			t.Errorf("%s: the node is %+v with %+v", name, n, n.Verdict)
		}
		if tt.says.What == "" {
			continue
		}
		tt.says.Cause, tt.says.Subject, tt.says.Severity = verdict.NodeSilent, "the node", tt.severity
		if want := tt.says.Completed(time.Now()); !reflect.DeepEqual(n.Verdict.Findings, []Finding{want}) {
			t.Errorf("%s: the node has %+v, want %+v", name, n.Verdict.Findings, want)
		}
	}
}

// If the server refuses to change a stream of an older version, the error says why.
func TestCreateMayNotChangeTheStream(t *testing.T) {
	js := fakeJetStream{stream: new(memoryStream), err: errors.New("refused")}
	if err := Create(t.Context(), js, "c", Limits{}); !errors.Is(err, js.err) || err.Error() != "create fleet: allow batches: not connected to : refused" {
		t.Errorf("Create() = %v, want %v", err, js.err)
	}
	js.stream.info.Config.AllowAtomicPublish = true
	if err := Create(t.Context(), js, "c", Limits{}); fmt.Sprint(err) != "create fleet: not connected to : no server answers" {
		t.Errorf("Create() = %v of a stream that need not change", err)
	}
}

// A stream without a limit has none; the server says -1.
func TestSizeOfTheStream(t *testing.T) {
	for most, want := range map[int64]uint64{-1: 0, 9: 9} {
		s := States{store: (&memoryStream{info: jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxBytes: most}, State: jetstream.StreamState{Bytes: 7}}}).on()}
		if used, limit, err := s.Size(t.Context()); err != nil || used != 7 || limit != want {
			t.Errorf("%d of %d bytes, %v; want 7 of %d", used, limit, err, want)
		}
	}
}
