package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// keptLease is a bucket with one value.
type keptLease struct {
	jetstream.KeyValue

	value    agentState
	text     string // in place of the value
	revision uint64
	takes    time.Duration // of each update
	within   time.Duration // the last update was to be done
	err      error         // of each look
}

func (k *keptLease) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	return leaseEntry{of: k}, k.err
}

type leaseEntry struct {
	jetstream.KeyValueEntry

	of *keptLease
}

func (e leaseEntry) Revision() uint64 { return e.of.revision }

func (e leaseEntry) Value() []byte {
	if e.of.text != "" {
		return []byte(e.of.text)
	}
	return encode(e.of.value)
}

func (k *keptLease) Update(ctx context.Context, _ string, value []byte, last uint64) (uint64, error) {
	if last == 0 {
		return 0, errors.New("the bucket has the mark of a deletion")
	}
	deadline, _ := ctx.Deadline()
	k.within = time.Until(deadline)
	time.Sleep(k.takes)
	k.value = agentState{}
	return last + 1, cmp.Or(ctx.Err(), json.Unmarshal(value, &k.value))
}

func (k *keptLease) Create(ctx context.Context, _ string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return k.Update(ctx, "", value, 40) // the mark's
}

// A lease says that all is published up to the time of a list, once no earlier message waits.
func TestLeaseIsBehindWhatWaits(t *testing.T) {
	bucket, at := &keptLease{}, time.Unix(1000, 0)
	var p Publisher
	p.bucket, p.revision = bucket, 1
	for _, step := range []struct {
		waiting       int // messages
		listed, known time.Time
	}{{1, at, time.Time{}}, {0, at, at}, {2, at.Add(time.Minute), at}, {0, at.Add(time.Minute), at.Add(time.Minute)}, {0, time.Time{}, at.Add(time.Minute)}} {
		p.queue, p.currentAsOf = make([]outgoing, step.waiting), step.listed
		kit.Must(t, p.renew(t.Context(), health{}))
		if got := bucket.value.CurrentAsOf; !got.Equal(step.known) {
			t.Errorf("while %d messages wait: known as of %v, want %v", step.waiting, got, step.known)
		}
		if p.due(health{}) {
			t.Error("a lease is due as soon as it is renewed")
		}
	}
}

// A renewal may take as long as any other request. An agent that has renewed its lease owns its place, and has told its
// health; after an error it looks for the bucket and its place again. At its end it says so, and nothing else.
func TestRenewal(t *testing.T) {
	for takes, works := range map[time.Duration]bool{requestTimeout - 1: true, requestTimeout + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			h, bucket := health{Verdict: &Verdict{Severity: verdict.Warning}}, &keptLease{takes: takes}
			var p Publisher
			p.o.Conn, p.bucket, p.revision, p.agent, p.key = new(nats.Conn), bucket, 7, "a", "c.n"
			err := p.renew(t.Context(), h)
			if want := (agentState{Layout: 2, Agent: "a", health: h}); works && !reflect.DeepEqual(bucket.value, want) || !works && err.Error() != "renew lease: not connected to : context deadline exceeded" {
				t.Errorf("%v, and the lease is %+v, want %+v", err, bucket.value, want)
			}
			if (err == nil) != works || p.owned != works || p.due(h) == works || (p.bucket != nil) != works || works && p.revision != 8 || !works && p.revision != 0 {
				t.Errorf("after %v: %v; owned: %v, due: %v, revision %d", takes, err, p.owned, p.due(h), p.revision)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			bucket.takes = 0
			if p.endLease(ctx); works && (!reflect.DeepEqual(bucket.value, agentState{Layout: 2, Agent: "a", Ended: true}) || bucket.within != time.Second) {
				t.Errorf("at its end the lease is %+v, within %v", bucket.value, bucket.within)
			}
			broken := errors.New("broken")
			p.bucket, p.revision = &keptLease{err: broken}, 0
			if err := p.renew(t.Context(), h); !errors.Is(err, broken) || err.Error() != "renew lease: not connected to : broken" {
				t.Errorf("renew() = %v without a look into the bucket", err)
			}
			p.bucket = &keptLease{err: jetstream.ErrKeyNotFound}
			if err := p.renew(t.Context(), h); err != nil || p.revision != 41 {
				t.Errorf("renew() = %v, and the revision is %d, once the lease was deleted", err, p.revision)
			}
		})
	}
}

// An agent whose place a newer one has taken waits for as long as that one renews its lease, and LeaseTTL longer: the two do not
// take turns.
func TestOlderAgentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := &keptLease{value: agentState{Agent: "newer"}}
		var p Publisher
		p.agent, p.owned, p.bucket = "older", true, bucket
		claims := func() bool {
			p.pods = make(map[string]*record)
			revision, err := p.claim(t.Context())
			if (err == nil) != (revision > 0) || err != nil && (err.Error() != "another agent publishes as this node: newer" || p.pods != nil) {
				t.Errorf("%v, and it keeps its records: %v", err, p.pods != nil)
			}
			return err == nil && revision == bucket.revision
		}
		for range 10 {
			if bucket.revision++; claims() {
				t.Fatal("it takes the place of an agent that renews its lease")
			}
			time.Sleep(renewPeriod)
		}
		time.Sleep(LeaseTTL - renewPeriod - 1)
		before := claims()
		time.Sleep(time.Nanosecond)
		if before || !claims() {
			t.Errorf("before the lease has expired: %v, then: %v; want it to wait until then", before, claims())
		}
	})
}

// A place is taken at once if no other agent has it, or nobody knows who does.
func TestFreePlaceIsTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		value string
		owned bool
	}{
		"that the agent takes for the first time": {`{"agent":"other"}`, false},
		"of an agent that has ended":              {`{"agent":"other","ended":true}`, true},
		"of its own":                              {`{"agent":"own"}`, true},
		"with a value that nobody can read":       {"garbage", true},
	} {
		var p Publisher
		p.agent, p.owned, p.bucket, p.pods = "own", tt.owned, &keptLease{text: tt.value, revision: 7}, make(map[string]*record)
		if revision, err := p.claim(t.Context()); err != nil || revision != 7 || p.pods == nil {
			t.Errorf("a place %s: revision %d, %v, and the states are known: %v", name, revision, err, p.pods != nil)
		}
	}
}

// A change of the causes is told at once; of their times and their order, with the next lease.
func TestHealthIsToldAtOnce(t *testing.T) {
	hangs := Finding{Cause: verdict.HungContainer, Severity: verdict.Problem, PodUID: "a", Call: "ContainerStatus", Since: time.Unix(1000, 0)}
	other := hangs
	other.PodUID = "b"
	of := func(change func(*Finding)) Finding {
		f := hangs
		change(&f)
		return f
	}
	bad := &Verdict{Severity: verdict.Problem}
	for name, tt := range map[string]struct {
		now health
		due bool
	}{
		"later, in another order": {health{bad, []Finding{other, of(func(f *Finding) { f.Since, f.Attempts = time.Unix(2000, 0), 9 })}}, false},
		"another severity":        {health{&Verdict{Severity: verdict.Warning}, []Finding{hangs, other}}, true},
		"no verdict":              {health{}, true},
		"a pod less":              {health{bad, []Finding{hangs}}, true},
		"another pod":             {health{bad, []Finding{of(func(f *Finding) { f.PodUID = "c" }), other}}, true},
		"another call":            {health{bad, []Finding{of(func(f *Finding) { f.Call = "PodSandboxStatus" }), other}}, true},
		"another cause":           {health{bad, []Finding{of(func(f *Finding) { f.Cause = verdict.HungShim }), other}}, true},
		"only a warning":          {health{bad, []Finding{of(func(f *Finding) { f.Severity = verdict.Warning }), other}}, true},
		"a cause of the node":     {health{&Verdict{Severity: verdict.Problem, Findings: []Finding{{Cause: verdict.Disk}}}, []Finding{hangs, other}}, true},
	} {
		var p Publisher
		p.health, p.renewed = health{bad, []Finding{hangs, other}}, time.Now()
		if due := p.due(tt.now); due != tt.due {
			t.Errorf("%s: told at once: %v, want %v", name, due, tt.due)
		}
	}
}

// A pipeline that does not answer is a problem of its node. Its agent goes on.
func TestHealthThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Publisher{o: PublisherOptions{Health: func(ctx context.Context) (pleg.Status, error) { <-ctx.Done(); return pleg.Status{}, ctx.Err() }}}
		began := time.Now()
		v := p.examine(t.Context()).Verdict
		if took := time.Since(began); took != time.Second || v == nil || v.Severity != verdict.Problem || !strings.Contains(v.Text, "does not answer the agent: "+context.DeadlineExceeded.Error()) {
			t.Errorf("after %v the verdict is %+v", took, v)
		}
	})
}

// A node is silent once its lease has expired, by the clock of the server.
func TestLeaseExpiresByTheServersClock(t *testing.T) {
	at := time.Unix(1000, 0)
	m := &jetstream.RawStreamMsg{Subject: leasePrefix + nodeKey("c", "n"), Time: at, Data: encode(agentState{Layout: layout, Agent: "a"})}
	for age, silent := range map[time.Duration]bool{15 * time.Second: false, 15*time.Second + 1: true} {
		if n := nodeIn(m, at.Add(age)); n.Silent != silent || (n.Agent == "") != silent {
			t.Errorf("with a lease of %v the node is %+v, want it silent: %v", age, n, silent)
		}
	}
	m.Data = []byte("garbage") // nobody knows what it says
	if n := nodeIn(m, at); !n.Silent || n.Verdict.Findings[0].What != "has no agent" || !n.Verdict.Findings[0].Since.Equal(at) {
		t.Errorf("with a lease that cannot be read the node is %+v, %+v", n, n.Verdict)
	}
}

// An agent reports each pod that fails, without advice, and of many those that fail the longest. The pods of a health that
// is too large are left out.
func TestHealthHasThePods(t *testing.T) {
	for failed, tt := range map[int]struct{ want, large int }{2: {2, maxHealth}, 150: {100, 1000}} {
		var status pleg.Status
		for n := range failed {
			status.Failed = append(status.Failed, pleg.Failed{UID: pleg.PodUID(fmt.Sprint(n)), Since: time.Unix(int64(1000-n), 0), Err: errors.New("broken")})
		}
		p := Publisher{o: PublisherOptions{Health: func(context.Context) (pleg.Status, error) { return status, nil }}}
		h := p.examine(t.Context())
		if len(h.Pods) != tt.want || h.Pods[0].PodUID != status.Failed[failed-1].UID || h.Pods[0].Evidence != "" || h.Pods[0].Advice != "" {
			t.Errorf("%d pods fail: reported are %d, %+v; want %d, the last first", failed, len(h.Pods), h.Pods, tt.want)
		}
		size := func(n int) (h health, bytes int) {
			for i := range status.Failed {
				status.Failed[i].Err = errors.New(strings.Repeat("b", n))
			}
			h = p.examine(t.Context())
			return h, len(encode(h))
		}
		if failed == 2 {
			_, small := size(1000)
			_, twice := size(2000)
			most := 1000 + 1000*(64<<10-small)/(twice-small)
			fits, _ := size(most)
			if less, _ := size(most + 1); len(fits.Pods) != 2 || len(less.Pods) > 0 {
				t.Errorf("of a health of 64 KiB %d pods are reported, and of a larger one %d", len(fits.Pods), len(less.Pods))
			}
		}
		size(tt.large)
		whole := verdict.Of(status)
		if h, text := p.examine(t.Context()), whole.Text[:min(maxText, len(whole.Text))]; len(h.Pods) > 0 || !reflect.DeepEqual(*h.Verdict, Verdict{Severity: whole.Severity, Text: text}) {
			t.Errorf("a health that is too large is %+v with %d pods, want %s", h.Verdict, len(h.Pods), text)
		}
	}
}

// A pod is known as of its last message, or of the newest list of its node that is published, however long ago
// that message was.
func TestPodIsKnownAsOfTheNewestList(t *testing.T) {
	at, r := time.Unix(1000, 0), record{}
	body, _ := r.encode(newMessage("", ofState, &pleg.Event{Epoch: "e", PodUID: "a", ObservedAt: at}), 1<<20)
	m := &jetstream.RawStreamMsg{Subject: podSubject("c", "n", "a"), Data: body}
	for listed, want := range map[time.Time]time.Time{{}: at, at.Add(-time.Hour): at, at.Add(time.Hour): at.Add(time.Hour)} {
		pod, ok := podOf(map[string]Node{"n": {Name: "n", CurrentAsOf: listed}}, m)
		if !ok || !pod.CurrentAsOf.Equal(want) {
			t.Errorf("with a list of %v the pod %v is known as of %v, want %v", listed, ok, pod.CurrentAsOf, want)
		}
	}
	body, cut := r.encode(newMessage("", ofState, &pleg.Event{Epoch: "e", PodUID: "a"}), 10)
	m.Data = body
	if pod, _ := podOf(map[string]Node{"n": {Name: "n"}}, m); cut == "" || pod.Partial != cut {
		t.Errorf("a pod that is published in part says %q, want %q", pod.Partial, cut)
	}
	m.Data = []byte(`{"data":{"epoch":"e","podUID":"a","pod":{"labels":7}}}`)
	if pod, ok := podOf(map[string]Node{"n": {Name: "n"}}, m); !ok || pod.UID != "a" || pod.Partial == "" {
		t.Errorf("a pod with labels that cannot be read is %+v", pod)
	}
}
