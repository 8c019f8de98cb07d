package wire_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// filler sets every field of a struct, and of structs behind its pointers, to a value that is not
// zero, and that no other field has: a field that takes the place of another is noticed.
type filler struct {
	text  string // of all fields; if empty, each has its own
	unset int    // the bools are false whose numbers have this bit
	n     int    // the number of the last field
}

func (f *filler) string() string { return cmp.Or(f.text, fmt.Sprint("text ", f.n)) }

func (f *filler) fill(t *testing.T, v reflect.Value) {
	t.Helper()
	f.n++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+int64(f.n), 123_456_789)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(t, v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.fill(t, field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2)) // each of several counts
		f.fill(t, v.Index(0))
		f.fill(t, v.Index(1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"key": f.string()}))
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[error]() {
			v.Set(reflect.ValueOf(errors.New(f.string())))
		}
		// Other values come from an embedder's runtime and stay in its process.
	case reflect.String:
		v.SetString(f.string())
	case reflect.Bool:
		v.SetBool(f.n&f.unset == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Float64:
		v.SetFloat(float64(f.n))
	case reflect.Uint8:
		v.SetUint(uint64(pleg.StateCreated) + uint64(f.n%3))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n))
	default:
		t.Fatalf("fill does not know %v", v.Type())
	}
}

func fillWith(t *testing.T, v any, f filler) {
	t.Helper()
	f.fill(t, reflect.ValueOf(v).Elem())
}

// sent returns the message as the receiver sees it.
func sent[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	kit.Must(t, err)
	out := m.ProtoReflect().New().Interface()
	kit.Must(t, proto.Unmarshal(data, out))
	return out.(M)
}

// filled returns a value whose fields are all set, except some of the bools. So the tests cover fields
// that are added later.
func filled[T any](t *testing.T, unset int) (v T) {
	t.Helper()
	fillWith(t, &v, filler{unset: unset})
	return v
}

// unset sets all bools at first, and then makes any two of them differ.
var unset = []int{0, 1, 2, 4, 8, 16, 32, 64, 128}

// requireKept fails unless a value arrives as it was sent.
func requireKept[T, M any, P interface {
	*M
	proto.Message
}](t *testing.T, want T, from func(T) P, to func(P) T) {
	t.Helper()
	if got := to(sent(t, from(want))); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEveryFieldIsKept(t *testing.T) {
	for _, unset := range unset {
		for _, typ := range eventtype.Types() {
			ev := filled[pleg.Event](t, unset)
			ev.Type = typ
			requireKept(t, ev, wire.FromEvent, wire.ToEvent)
		}
		for _, state := range []pleg.State{pleg.StateUnknown, pleg.StateCreated, pleg.StateRunning, pleg.StateExited} {
			status := filled[*pleg.PodStatus](t, unset)
			status.Containers[0].State = state
			requireKept(t, status, wire.FromStatus, wire.ToStatus)
			if name := wire.FromStatus(status).GetContainers()[0].GetState().String(); name != "STATE_"+strings.ToUpper(state.String()) {
				t.Errorf("the state %s is sent as %s", state, name)
			}
		}
		requireKept(t, filled[lookup.Container](t, unset), wire.FromContainer, wire.ToContainer)
		now := filled[pleg.Status](t, unset)
		now.Version, now.Details = "", filled[nodestate.State](t, unset) // the version is beside the status
		requireKept(t, now, wire.FromPipelineStatus, wire.ToPipelineStatus)
		if m := wire.FromPipelineStatus(now); m.GetWidth() != uint32(now.Inspectors) { // for older clients
			t.Errorf("the width is %d, want %d", m.GetWidth(), now.Inspectors)
		}
	}
	zero := int32(0)
	requireKept(t, pleg.Event{Type: pleg.ContainerDied, ExitCode: &zero}, wire.FromEvent, wire.ToEvent)
	requireKept(t, pleg.Event{Type: pleg.ContainerDied}, wire.FromEvent, wire.ToEvent)
	for _, q := range []lookup.Query{{Container: "c", Wait: time.Second}, {PID: 7}, {Cgroup: 1 << 40}} {
		requireKept(t, q, wire.FromQuery, wire.ToQuery)
	}
	for field := range reflect.TypeFor[nodestate.State]().NumField() { // alone
		var part nodestate.State
		(&filler{}).fill(t, reflect.ValueOf(&part).Elem().Field(field))
		requireKept(t, pleg.Status{Details: part}, wire.FromPipelineStatus, wire.ToPipelineStatus)
	}
	requireKept(t, pleg.Status{}, wire.FromPipelineStatus, wire.ToPipelineStatus)
	requireKept(t, &pleg.Pod{ // as in a list
		UID: "u", Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web"},
		Containers: []*pleg.Container{{ID: "c", Name: "app", Attempt: 2, State: pleg.StateExited, CreatedAt: time.Unix(5, 0)}},
		Sandboxes: []*pleg.Container{
			{ID: "s2", Name: "web-0", Attempt: 1, State: pleg.StateRunning, CreatedAt: time.Unix(7, 0)}, {ID: "s1", Name: "web-0", State: pleg.StateExited},
		},
	}, wire.FromPod, wire.ToPod)
}

func TestOptionsKeepEveryField(t *testing.T) {
	for _, unset := range unset {
		want := filled[pleg.SubscribeOptions](t, unset)
		want.Filter.Types = []pleg.EventType{pleg.ContainerDied, pleg.PodSync}
		after := want
		want.After, after.Since = pleg.Position{}, time.Time{} // After and Since exclude each other
		first := after
		first.After.Seq = 0 // before the first event
		for _, want := range []pleg.SubscribeOptions{want, after, first} {
			r, err := wire.FromOptions(want)
			kit.Must(t, err)
			if got, err := wire.ToOptions(sent(t, r)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
			}
		}
	}
}

// A missing or unknown value stays missing or unknown.
func TestAbsentValues(t *testing.T) {
	if wire.ToStatus(wire.FromStatus(nil)) != nil || wire.FromPod(nil) != nil || wire.ToPod(nil) != nil {
		t.Error("no pod became one")
	}
	if got := wire.ToStatus(&plegv1.PodStatus{Containers: []*plegv1.ContainerStatus{{State: 99}}}); got.Containers[0].State != pleg.StateUnknown {
		t.Errorf("state 99 became %v, want %v", got.Containers[0].State, pleg.StateUnknown)
	}
	if none, empty := wire.ToEvent(nil), wire.ToEvent(new(plegv1.Event)); !reflect.DeepEqual(none, empty) {
		t.Errorf("no event became %+v, want %+v", none, empty)
	}
	if m := wire.FromPipelineStatus(pleg.Status{}); !proto.Equal(m, &plegv1.PipelineStatus{Relist: new(plegv1.RelistStatus)}) {
		t.Errorf("an empty status is sent as %v", m)
	}
}

func TestKnownErrorsStaySo(t *testing.T) {
	away := pleg.Status{Relist: pleg.RelistStatus{Err: fmt.Errorf("list pods: %w: refused", pleg.ErrUnavailable)}}
	if err := wire.ToPipelineStatus(sent(t, wire.FromPipelineStatus(away))).Relist.Err; !errors.Is(err, pleg.ErrUnavailable) || err.Error() != away.Relist.Err.Error() {
		t.Errorf("the error of an unavailable runtime became %v", err)
	}
	large := pleg.Status{Degraded: fmt.Errorf("%w: list containers: 18 MiB", pleg.ErrListTooLarge)}
	if err := wire.ToPipelineStatus(sent(t, wire.FromPipelineStatus(large))).Degraded; !errors.Is(err, pleg.ErrListTooLarge) || err.Error() != large.Degraded.Error() {
		t.Errorf("the error of a list that is too large became %v", err)
	}
	other := pleg.Status{Degraded: errors.New("the socket is gone")}
	if err := wire.ToPipelineStatus(sent(t, wire.FromPipelineStatus(other))).Degraded; err.Error() != other.Degraded.Error() || errors.Is(err, pleg.ErrListTooLarge) {
		t.Errorf("another fallback became %v", err)
	}
}

// Clients of other languages read the reason and the domain.
func TestNotSynced(t *testing.T) {
	s := status.Convert(wire.NotSynced())
	if s.Code() != codes.Unavailable || s.Message() != pleg.ErrNotSynced.Error() || len(s.Details()) != 1 || !wire.IsNotSynced(s) ||
		!proto.Equal(s.Details()[0].(proto.Message), &errdetails.ErrorInfo{Reason: "NOT_SYNCED", Domain: "pleg.v1"}) {
		t.Errorf("the status is %v", s)
	}
	for _, other := range []*errdetails.ErrorInfo{{Reason: "NOT_SYNCED", Domain: "other"}, {Reason: "OTHER", Domain: "pleg.v1"}} {
		s, err := status.New(codes.Unavailable, "other").WithDetails(other)
		kit.Must(t, err)
		if wire.IsNotSynced(s) {
			t.Errorf("%v is not synced", s)
		}
	}
}

// The table contains the numbers of the protobuf enum, and no others.
func TestEventTypesHaveTheNumbersOfTheEnum(t *testing.T) {
	boundary := regexp.MustCompile(`([a-z])([A-Z])`)
	numbers := map[string]int32{"EVENT_TYPE_UNSPECIFIED": 0}
	for _, typ := range eventtype.Types() {
		name := boundary.ReplaceAllString(string(typ), "${1}_${2}")
		numbers["EVENT_TYPE_"+strings.ToUpper(name)] = eventtype.Of(typ).Number
	}
	if !maps.Equal(numbers, plegv1.EventType_value) {
		t.Errorf("the table has %v, the enum %v", numbers, plegv1.EventType_value)
	}
}

// The runtime of an embedder may return any string.
func TestTextIsSentAsUTF8(t *testing.T) {
	const said, want = "caf\xe9", "caf\uFFFD"
	var ev pleg.Event
	fillWith(t, &ev, filler{text: said})
	ev.Type = pleg.ContainerDied
	if m := sent(t, wire.FromEvent(ev)); m.GetPodName() != want || m.GetReason() != want {
		t.Errorf("the event is sent as %v", m)
	}
	var status pleg.PodStatus
	fillWith(t, &status, filler{text: said})
	for n := range 20 { // most entries are valid
		status.Containers[0].Labels[fmt.Sprint("key-", n)] = "text"
	}
	status.Sandboxes[0].Labels = map[string]string{said: want}
	m := sent(t, wire.FromStatus(&status))
	c, sandbox := m.GetContainers()[0], m.GetSandboxes()[0]
	for _, got := range []string{m.GetUid(), m.GetIps()[0], c.GetMessage(), c.GetLabels()["key"], sandbox.GetIps()[0], sandbox.GetAnnotations()["key"], sandbox.GetLabels()[want]} {
		if got != want {
			t.Errorf("%q is sent as %q, want %q", said, got, want)
		}
	}
	var now pleg.Status // sent checks the text of all messages
	var details nodestate.State
	var container lookup.Container
	var pod pleg.Pod
	for _, v := range []any{&now, &details, &container, &pod} {
		fillWith(t, v, filler{text: said})
	}
	now.Details = details
	if got := sent(t, wire.FromPipelineStatus(now)); got.GetEndpoint() != want || got.GetRuntime().GetName() != want {
		t.Errorf("the status of the pipeline is sent as %v", got)
	}
	if got := sent(t, wire.FromContainer(container)); got.GetPodName() != want {
		t.Errorf("the container is sent as %v", got)
	}
	if got := sent(t, wire.FromPod(&pod)); got.GetName() != want {
		t.Errorf("the listed pod is sent as %v", got)
	}
	if got := sent(t, wire.FromQuery(lookup.Query{Container: said})); got.GetContainerId() != want {
		t.Errorf("the query is sent as %v", got)
	}
	if status.Containers[0].Labels["key"] != said {
		t.Error("the status itself was changed")
	}
}

func TestUnknownEventTypeKeepsItsNumber(t *testing.T) {
	if got, want := wire.ToEventType(99), pleg.EventType("99"); got != want {
		t.Errorf("ToEventType(99) = %q, want %q", got, want)
	}
	if _, ok := wire.FromEventType("NoSuchType"); ok {
		t.Error("FromEventType knows NoSuchType")
	}
}

// JSON knows no years beyond 9999, in the zone of this machine, and Go's zero time is no time.
func TestYearsThatJSONCannotHave(t *testing.T) {
	const first, last, hour = -62135596800, 253402300799, 3600
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	for _, test := range []struct {
		seconds int64
		east    int
		is      bool
	}{
		{0, 0, true},
		{last, 0, true},
		{last + 1, 0, false},
		{last, hour, false},
		{last, -hour, true},
		{first - 1, 0, false},
		{first + 1, 0, true},
		{first + 1, -hour, false},
	} {
		time.Local = time.FixedZone("", test.east)
		if got := wire.ToTime(&timestamppb.Timestamp{Seconds: test.seconds}); got.IsZero() == test.is {
			t.Errorf("%d s became %v, %d s east", test.seconds, got, test.east)
		}
	}
	if got := wire.ToTime(&timestamppb.Timestamp{Seconds: 5, Nanos: 1e9}); !got.IsZero() {
		t.Errorf("a second within a second became %v", got)
	}
}

// FuzzEvent checks that an event of any version is the same after it is sent once
// more.
func FuzzEvent(f *testing.F) {
	ev := filled[pleg.Event](&testing.T{}, 0)
	for _, t := range []pleg.EventType{pleg.ContainerDied, pleg.PodSync, pleg.Synced, pleg.Gap} {
		ev.Type = t
		data, err := proto.Marshal(wire.FromEvent(ev))
		kit.Must(f, err)
		f.Add(data)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m plegv1.Event
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		first := wire.ToEvent(&m)
		if _, known := wire.FromEventType(first.Type); !known {
			first.Type = pleg.PodSync // the type of a newer version has a name here, but no number
		}
		if second := wire.ToEvent(wire.FromEvent(first)); !reflect.DeepEqual(first, second) {
			t.Errorf("%+v, sent once more, is %+v", first, second)
		}
	})
}
