package podcache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each script contains one step a semicolon. A pod and the time of an observation are one word, such
// as a3:
//
//	set a3=NAME         an inspection returned a status of that name
//	fail a3             an inspection failed
//	gone a3, touch a3   the observation found the pod gone, or as it is in the cache
//	list 3 PODS         a list of all pods; these have changed, and wait for an inspection
//	synced, close       the first list is committed; Run has returned
//	newer a3            a call of GetNewerThan begins
//	give-up a3          the same, with a context that has ended
//	get a, entry a, list, pending   what is in the cache
//
// The test records the content of the cache and the result of each call: the name of a status or of
// an error, and the times up to which it and the last good status are known.
var scripts = map[string]struct{ script, want string }{
	"before the first list":                                   {"get a", "unsynced"},
	"listed, its first inspection has not ended":              {"list 1 a; get a; entry a", "unsynced a=uninspected,listed"},
	"its first inspection has not ended after the first list": {"synced; list 1 a; get a", "unknown"},
	"an unknown pod":                                          {"synced; get a", "unknown"},
	"not in the first list":                                   {"list 1; get a", "unknown"},
	"a newer inspection wins":                                 {"set a1=first; get a; set a2=second; get a", "first second"},
	"an older inspection is ignored":                          {"set a2=second; set a1=first; get a", "second"},
	"the later of two at the same time wins":                  {"set a1=first; set a1=second; get a", "second"},
	"an error hides the status until the next":                {"set a1=first; fail a2; get a; set a3=third; get a", "failed third"},
	"an inspection older than a touch":                        {"set a1=first; touch a3; set a2=second; get a", "first"},
	"gone":                                                    {"set a1=first; gone a2; get a; entry a", "unknown a=none"},
	"gone, an older inspection is ignored":                    {"synced; gone a2; set a1=first; get a", "unknown"},
	"gone, listed, an older inspection":                       {"gone a3; list 2; set a1=first; get a", "unknown"},
	"an older end is ignored":                                 {"set a2=second; gone a1; get a", "second"},
	"gone and back":                                           {"gone a1; set a2=second; list 3; get a", "second"},
	"another pod is gone":                                     {"set a1=first; gone b2; list 3; get a", "first"},

	"newer: already set":                       {"set a3=new; newer a2", "a2:new"},
	"newer: a touch takes nothing back":        {"set a3=new; touch a1; newer a2", "a2:new"},
	"newer: already covered by a list":         {"list 3; newer a2", "a2:unknown"},
	"newer: already gone":                      {"synced; gone a3; newer a2", "a2:unknown"},
	"newer: already an error":                  {"fail a3; newer a2", "a2:failed"},
	"newer: already gone, after the list":      {"set a1=old; gone a3; list 2; newer a2", "a2:unknown"},
	"newer: gone twice before the list":        {"gone a1; gone a2; list 3; newer a2", "a2:unknown"},
	"newer: the same time is not newer":        {"set a2=old; newer a2; set a2=old; list 2; touch a2; get a; set a3=new", "old a2:new"},
	"newer: a list":                            {"set a1=old; newer a2; list 2; get a; list 3", "old a2:old"},
	"newer: a list answers for each pod":       {"newer a2; newer b2; newer c2; list 3", "a2:unknown b2:unknown c2:unknown"},
	"newer: a list of an unknown pod":          {"newer a2; list 1; get a; list 3", "unknown a2:unknown"},
	"newer: another pod":                       {"newer a2; set b3=new; get b; set a3=newer", "new a2:newer"},
	"newer: gone":                              {"set a1=old; newer a2; gone a3", "a2:unknown"},
	"newer: an error":                          {"set a1=old; newer a2; fail a3", "a2:failed"},
	"newer: a list does not cover a change":    {"set a1=old; newer a2; list 3 a; get a; set a3=new", "old a2:new"},
	"newer: the error of the change":           {"set a1=old; newer a2; list 3 a; get a; fail a3", "old a2:failed"},
	"newer: the change is its end":             {"set a1=old; newer a2; list 3 a; get a; gone a3", "old a2:unknown"},
	"newer: an older inspection":               {"set a1=old; newer a2; list 3 a; set a2=mid; get a; touch a3", "mid a2:mid"},
	"newer: two lists show the change":         {"set a1=old; newer a2; list 3 a; list 4 a; get a; set a3=new", "old a2:new"},
	"newer: the next list shows no change":     {"set a1=old; newer a2; list 3 a; get a; list 4 b", "old a2:old"},
	"newer: changed before the call":           {"set a1=old; list 3 a; newer a2; get a; touch a3", "old a2:old"},
	"newer: gone, then changed":                {"gone a1; list 3 a; synced; newer a2; get a; touch a3", "unknown a2:unknown"},
	"newer: an older touch":                    {"set a2=old; newer a2; touch a1; get a; touch a3", "old a2:old"},
	"newer: a touch of an unknown pod":         {"newer a2; touch a2; synced; get a; list 3", "unknown a2:unknown"},
	"newer: each call has its own time":        {"newer a0; newer a1; newer a2; set a1=x; set a2=y; set a3=z", "a0:x a1:y a2:z"},
	"newer: the end of Run":                    {"newer a1; newer b1; close; set a2=last; newer a1", "a1:stopped b1:stopped a1:last"},
	"newer: nor does one that is given up":     {"newer a1; give-up a1; set a2=x", "context canceled a1:x"},
	"newer: an ended call takes no other away": {"newer a1; newer a3; set a2=x; set a4=y", "a1:x a3:y"},

	"entry: inspected":                       {"set a1=x; entry a", "a=x@1,last=x@1"},
	"entry: unchanged in later lists":        {"set a1=x; list 2; list 5; entry a", "a=x@5,last=x@5"},
	"entry: changed in a list":               {"set a1=x; list 4; list 5 a; list 6 a; entry a", "a=x@1,last=x@4,listed"},
	"entry: failed":                          {"set a1=x; list 4; list 5 a; fail a5; entry a", "a=failed@5,last=x@4,listed"},
	"entry: failed between two lists":        {"set a1=x; list 4; fail a5; list 6 a; entry a", "a=failed@5,last=x@4,listed"},
	"entry: failed twice":                    {"set a1=x; list 5 a; fail a5; list 6 a; fail a6; list 7 a; entry a", "a=failed@6,last=x@1,listed"},
	"entry: unchanged alone":                 {"set a1=x; touch a3; list 4 a; fail a4; entry a", "a=failed@4,last=x@3,listed"},
	"entry: unchanged alone after a failure": {"set a1=x; fail a2; touch a3; entry a", "a=failed@3,last=x@1"},
	"entry: failed, and its last list showed no change": {
		"list 2 a; set a2=x; list 3; fail a4; entry a; list 5 a; entry a", "a=failed@4,last=x@3 a=failed@4,last=x@3,listed",
	},
	"entry: gone and back": {"set a1=x; gone a2; fail a3; entry a", "a=failed@3"},
	"entry: only failed":   {"list 1 a; fail a1; list 2 a; fail a2; entry a; set a3=x; entry a", "a=failed@2,listed a=x@3,last=x@3"},

	"all that is not gone, by UID": {
		"all; set c1=c; set b2=b; fail a3; set d1=d; gone d4; list 4; list 5 c a e; gone f6; all; entry d; entry f",
		"none a=failed@3,listed b=b@5,last=b@5 c=c@1,last=c@4,listed e=uninspected,listed d=none f=none",
	},
	"pending until a touch of the time of its list": {"set a2=x; list 2 a; pending; touch a2; pending", "a@2=x none"},
	"pending since the first list that showed it, the longest first": {
		"set b1=x; list 2 b; pending; list 3 a b; set b2=y; pending; set b3=z; pending; list 4; pending; list 5 a; fail a4; pending",
		"b@2=x b@2=y a@3=none a@3=none none a@5=failed",
	},
}

var errInspect = errors.New("inspection failed")

func TestScripts(t *testing.T) {
	for name, tc := range scripts {
		kit.Bubble(t, name, func(t *testing.T) {
			s := &script{t: t, Cache: podcache.New()}
			for step := range strings.SplitSeq(tc.script, "; ") {
				s.play(step)
				s.collect()
			}
			if got := strings.Join(s.got, " "); got != tc.want {
				t.Errorf("%s:\n\tgot  %s\n\twant %s", tc.script, got, tc.want)
			}
			if len(s.calls) > 0 {
				t.Error("a call of GetNewerThan has not ended")
			}
		})
	}
}

type script struct {
	*podcache.Cache
	t     *testing.T
	calls []chan string // calls of GetNewerThan that wait
	got   []string
}

func (s *script) play(step string) {
	what, words, _ := strings.Cut(step, " ")
	word, name, _ := strings.Cut(words, "=")
	uid, n := pleg.PodUID(strings.TrimRight(word, "0123456789")), at(strings.TrimLeft(word, "abcdef"))
	switch what {
	case "set":
		s.Set(uid, &pleg.PodStatus{UID: uid, Name: name}, nil, n)
	case "fail":
		s.Set(uid, nil, errInspect, n)
	case "gone":
		s.Delete(uid, n)
	case "touch":
		s.Touch(uid, n)
	case "list":
		var pending []*pleg.Pod
		for _, uid := range strings.Fields(words)[1:] {
			pending = append(pending, &pleg.Pod{UID: pleg.PodUID(uid), Name: uid})
		}
		s.Observe(at(strings.Fields(words)[0]), pending)
	case "synced":
		s.MarkSynced()
	case "close":
		s.Close()
	case "newer":
		call := make(chan string, 1)
		s.calls = append(s.calls, call)
		go func() {
			status, err := s.GetNewerThan(s.t.Context(), uid, n)
			call <- word + ":" + result(status, err)
		}()
	case "give-up":
		ended, cancel := context.WithCancel(s.t.Context())
		cancel()
		s.got = append(s.got, result(s.GetNewerThan(ended, uid, n)))
	case "get":
		s.got = append(s.got, result(s.Get(uid)))
	case "entry":
		e, ok := s.Entry(uid)
		if !ok {
			s.got = append(s.got, word+"=none")
			break
		}
		s.got = append(s.got, entry(e))
	case "all":
		s.note(len(s.List()))
		for _, e := range s.List() {
			s.got = append(s.got, entry(e))
		}
	case "pending":
		s.note(len(s.Pending()))
		for _, p := range s.Pending() {
			if p.Pod.Name != string(p.UID) {
				s.t.Errorf("pod %s is %+v", p.UID, p.Pod)
			}
			s.got = append(s.got, fmt.Sprintf("%s@%s=%s", p.UID, number(p.Since), result(p.Status, p.Err)))
		}
	default:
		s.t.Fatalf("no such step: %q", step)
	}
}

func (s *script) note(n int) {
	if n == 0 {
		s.got = append(s.got, "none")
	}
}

// collect records the calls that have ended.
func (s *script) collect() {
	synctest.Wait()
	waiting := s.calls[:0]
	for _, call := range s.calls {
		select {
		case ended := <-call:
			s.got = append(s.got, ended)
		default:
			waiting = append(waiting, call)
		}
	}
	s.calls = waiting
}

// at returns the time of an observation.
func at(number string) time.Time {
	n, _ := strconv.Atoi(number)
	return time.Unix(1_700_000_000+int64(n), 0)
}

func number(at time.Time) string { return fmt.Sprint(at.Unix() - 1_700_000_000) }

func result(status *pleg.PodStatus, err error) string {
	for name, of := range map[string]error{
		"failed": errInspect, "unknown": pleg.ErrUnknownPod, "unsynced": pleg.ErrNotSynced, "stopped": pleg.ErrStopped, "uninspected": cache.ErrNotInspected,
	} {
		if errors.Is(err, of) && status == nil {
			return name
		}
	}
	switch {
	case err != nil:
		return err.Error()
	case status == nil:
		return "none"
	default:
		return status.Name
	}
}

func entry(e cache.Entry) string {
	words := fmt.Sprintf("%s=%s", e.UID, result(e.Status, e.Err))
	if !e.CurrentAsOf.IsZero() {
		words += "@" + number(e.CurrentAsOf)
	}
	if e.Last != nil {
		words += fmt.Sprintf(",last=%s@%s", e.Last.Name, number(e.LastAsOf))
	} else if !e.LastAsOf.IsZero() {
		words += ",last=none@" + number(e.LastAsOf)
	}
	if e.Listed != nil {
		words += ",listed"
	}
	return words
}

// exited returns the status of an exited container.
func exited(id string, code int32) *pleg.ContainerStatus {
	return &pleg.ContainerStatus{ID: pleg.ContainerID(id), State: pleg.StateExited, ExitCode: code}
}

// The list answers for each pod whose inspection has failed, or takes long.
func TestUninspected(t *testing.T) {
	c := podcache.New()
	c.Set("fails", nil, errInspect, at("1"))
	c.Observe(at("1"), []*pleg.Pod{{UID: "fails"}, {UID: "long"}, {UID: "too"}})
	c.Observe(at("3"), []*pleg.Pod{{UID: "fails"}, {UID: "long"}, {UID: "too"}, {UID: "new"}})
	c.Set("covered", nil, errInspect, at("3"))
	for since, want := range map[string]string{"0": "[fails]", "1": "[fails long too]", "2": "[fails long too]", "3": "[fails long new too]"} {
		var got []string
		for _, pod := range c.Uninspected(at(since)) {
			got = append(got, string(pod.UID))
		}
		if slices.Sort(got); fmt.Sprint(got) != want {
			t.Errorf("not inspected since %s are %v, want %s", since, got, want)
		}
	}
}

func TestRemovedContainersAreKeptForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := podcache.New()
		require := func(id pleg.ContainerID, want *pleg.ContainerStatus) {
			t.Helper()
			if got := c.GetRemoved(id); got != want {
				t.Errorf("GetRemoved(%s) = %+v, want %+v", id, got, want)
			}
		}
		require("a", nil)
		a, b := exited("a", 1), exited("b", 2)
		c.KeepRemoved(a) // the container has ended
		time.Sleep(30 * time.Second)
		c.KeepRemoved(b)
		c.KeepRemoved(exited("a", 9)) // the first status counts, and the removal begins the minute
		require("a", a)
		require("b", b)
		time.Sleep(40 * time.Second)
		c.NoteRemoved("b", true)
		time.Sleep(20 * time.Second)
		c.NoteRemoved("other", true)
		require("a", a)
		time.Sleep(time.Nanosecond)
		require("a", nil)
		again := exited("a", 4)
		c.KeepRemoved(again)
		require("a", again)
		time.Sleep(40*time.Second - time.Nanosecond)
		require("b", b)
		time.Sleep(time.Nanosecond)
		require("b", nil)
	})
}

func TestRemovedContainersAreBounded(t *testing.T) {
	c := podcache.New()
	const flood = 5000
	for n := range flood {
		c.KeepRemoved(exited(fmt.Sprint(n), 0))
		c.NoteRemoved(pleg.ContainerID(fmt.Sprint(n)), true) // a removal without a status takes no room
		if n == 1023 && c.GetRemoved("0") == nil {
			t.Error("the first of 1024 is not kept")
		}
	}
	kept := 0
	for n := range flood {
		if c.GetRemoved(pleg.ContainerID(fmt.Sprint(n))) != nil {
			kept++
		}
	}
	if kept != 1024 || c.GetRemoved("4999") == nil {
		t.Errorf("%d are kept, want the newest 1024", kept)
	}
}

// The end of a removed container is awaited until its status is known, or both events have come, or the
// event of the end is late.
func TestAwaitRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		notes []bool // events: of the removal, or of the end
		late  time.Duration
		kept  bool
		waits bool
	}{
		"no event":                           {waits: true},
		"its end":                            {notes: []bool{false}, waits: true},
		"its end, twice":                     {notes: []bool{false, false}, waits: true},
		"its end, long ago":                  {notes: []bool{false}, late: time.Hour, waits: true},
		"its removal":                        {notes: []bool{true}, late: 500*time.Millisecond - 1, waits: true},
		"its removal, twice":                 {notes: []bool{true, true}, waits: true},
		"its removal, half a second ago":     {notes: []bool{true}, late: 500 * time.Millisecond},
		"its end and its removal":            {notes: []bool{false, true}},
		"its removal and its end":            {notes: []bool{true, false}},
		"its end, its removal and its end":   {notes: []bool{false, true, false}},
		"its end, removal, and once more so": {notes: []bool{false, true, true}},
		"its status":                         {kept: true},
		"its end and its status":             {notes: []bool{false}, kept: true},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			c := podcache.New()
			if c.AwaitRemoved("a") != nil {
				t.Error("waits for an event although none comes")
			}
			c.AnnounceRemoved(true)
			first := c.AwaitRemoved("a")
			c.NoteRemoved("other", true)
			select {
			case <-first:
			default:
				t.Error("an event does not wake who waits")
			}
			for _, removed := range tc.notes {
				c.NoteRemoved("a", removed)
			}
			if tc.kept {
				c.KeepRemoved(exited("a", 1))
			}
			time.Sleep(tc.late)
			more := c.AwaitRemoved("a")
			if (more != nil) != tc.waits || c.AwaitRemoved("a") != more {
				t.Errorf("waits: %v, want %v", more != nil, tc.waits)
			}
			c.AnnounceRemoved(false)
			if more != nil {
				<-more // the stream has ended
			}
			if c.AwaitRemoved("a") != nil {
				t.Error("waits although the stream has ended")
			}
		})
	}
}
