package schedule_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// sample has everything that a file can have.
const sample = `{"version": 1, "seed": 3, "latency": "node",
"pods": [
  {"name":"shop/cart-0","containers":["cart","envoy"]}],
"steps": [
  {"at":"500ms","do":"add","pod":"batch/job-1","containers":["job"]},
  {"at":"1s","do":"oom","pod":"shop/cart-0","container":"cart","exitCode":137,"reason":"OOMKilled"},
  {"at":"1.5s","do":"complete","pod":"batch/job-1","container":"job","reason":"Completed"},
  {"at":"2s","do":"restart","pod":"shop/cart-0","container":"cart"},
  {"at":"2s","do":"delete","pod":"batch/job-1"},
  {"at":"3s","do":"remove","pod":"batch/job-1"}],
"faults": [
  {"call":"ContainerStatus","kind":"error","pod":"shop/cart-0","after":1,"times":1,"code":"Unavailable"},
  {"call":"ListContainers","kind":"hang","from":"1s","until":"2s"},
  {"call":"PodSandboxStatus","kind":"slow","probability":0.4,"seed":12,"delay":"20ms"},
  {"call":"StreamContainers","kind":"truncate","from":"1s","messages":2},
  {"call":"GetContainerEvents","kind":"malform","malform":"nil-status"},
  {"call":"PodStatus","kind":"panic","times":1}]}
`

func decode(t *testing.T, text string) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Decode(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t *testing.T, s *schedule.Schedule) string {
	t.Helper()
	var out bytes.Buffer
	if err := s.Encode(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestFileIsReadAsItWasWritten(t *testing.T) {
	s := decode(t, sample)
	if got := encode(t, s); got != sample {
		t.Errorf("written as\n%s\nwant\n%s", got, sample)
	}
	if s.End() != 3*time.Second {
		t.Errorf("it ends after %v, want 3s", s.End())
	}
	for i, want := range []string{
		"ContainerStatus/error/once", "ListContainers/hang/always", "PodSandboxStatus/slow/random",
		"StreamContainers/truncate/always", "GetContainerEvents/malform/always", "PodStatus/panic/once",
	} {
		if got := s.Faults[i].String(); got != want {
			t.Errorf("fault %d is %s, want %s", i, got, want)
		}
	}
}

// Whatever is wrong with a file is said, with the place.
func TestBadFiles(t *testing.T) {
	pods := func(s string) string { return `{"version":1,"seed":1,"pods":[` + s + `],"steps":[],"faults":[]}` }
	steps := func(s string) string { return `{"version":1,"seed":1,"pods":[],"steps":[` + s + `],"faults":[]}` }
	faults := func(s string) string { return `{"version":1,"seed":1,"pods":[],"steps":[],"faults":[` + s + `]}` }
	for name, tt := range map[string]struct{ text, want string }{
		"empty":                {"", "it is empty"},
		"spaces":               {" \n", "it is empty"},
		"no JSON":              {"seed: 1", "line 1: invalid character"},
		"cut off":              {sample[:len(sample)/2], "unexpected end of JSON"},
		"something behind it":  {sample + "{}", "invalid character '{'"},
		"another file":         {`{"pods": []}`, `no "version"`},
		"newer":                {`{"version": 2, "nodes": []}`, "made by a newer program"},
		"version 0":            {`{"version": 0}`, "there is only 1"},
		"unknown field":        {strings.Replace(sample, `"seed": 3`, `"sead": 3`, 1), `unknown field "sead"`},
		"unknown fault field":  {strings.Replace(sample, `"times"`, `"thymes"`, 1), `unknown field "thymes"`},
		"text for a number":    {strings.Replace(sample, `"exitCode":137`, `"exitCode":"137"`, 1), "line 6: json: cannot unmarshal"},
		"no time":              {steps(`{"at":"soon","do":"delete","pod":"a/b"}`), `"soon" is no time`},
		"latency":              {`{"version":1,"latency":"fast"}`, `"fast"`},
		"pod without name":     {pods(`{"name":"shop"}`), `pod 0: pod "shop": want NAMESPACE/NAME`},
		"pod twice":            {pods(`{"name":"a/b"},{"name":"a/b"}`), "pod 1: a/b is there already"},
		"container twice":      {pods(`{"name":"a/b","containers":["c","c"]}`), "want names that differ"},
		"step before another":  {steps(`{"at":"2s","do":"delete","pod":"a/b"},{"at":"1s","do":"delete","pod":"a/b"}`), "step 1: at 1s, before the step ahead of it"},
		"step before the time": {steps(`{"at":"-2s","do":"delete","pod":"a/b"}`), "step 0: at -2s"},
		"unknown step":         {steps(`{"at":"2s","do":"shout","pod":"a/b"}`), `"shout"`},
		"step without pod":     {steps(`{"at":"2s","do":"delete"}`), `pod ""`},
		"exit of nothing":      {steps(`{"at":"2s","do":"crash","pod":"a/b"}`), "crash needs a container"},
		"unknown call":         {faults(`{"call":"Exec","kind":"hang"}`), `fault 0: call "Exec": want one of`},
		"kind":                 {faults(`{"call":"ContainerStatus","kind":"truncate"}`), `kind "truncate": ContainerStatus knows`},
		"panic of an RPC":      {faults(`{"call":"ContainerStatus","kind":"panic"}`), `kind "panic"`},
		"fault's pod":          {faults(`{"call":"ContainerStatus","kind":"hang","pod":"a/b/c"}`), `pod "a/b/c"`},
		"window":               {faults(`{"call":"ContainerStatus","kind":"hang","from":"2s","until":"1s"}`), "from 2s until 1s"},
		"after":                {faults(`{"call":"ContainerStatus","kind":"hang","after":-1}`), "after -1 calls"},
		"probability":          {faults(`{"call":"ContainerStatus","kind":"hang","probability":1.5}`), "probability 1.5"},
		"no code":              {faults(`{"call":"ContainerStatus","kind":"error"}`), `code ""`},
		"code that is none":    {faults(`{"call":"ContainerStatus","kind":"error","code":"OK"}`), `code "OK"`},
		"code of another kind": {faults(`{"call":"ContainerStatus","kind":"hang","code":"Internal"}`), `code "Internal"`},
		"no delay":             {faults(`{"call":"ContainerStatus","kind":"slow"}`), "delay 0s"},
		"delay of a hang":      {faults(`{"call":"ContainerStatus","kind":"hang","delay":"1s"}`), "delay 1s"},
		"no messages":          {faults(`{"call":"StreamContainers","kind":"truncate"}`), "messages 0"},
		"no way":               {faults(`{"call":"ContainerStatus","kind":"malform"}`), `malform ""`},
		"way of another call":  {faults(`{"call":"ContainerStatus","kind":"malform","malform":"duplicate-ids"}`), `malform "duplicate-ids"`},
		"too long":             {strings.Repeat(" ", 17<<20), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := schedule.Decode(strings.NewReader(tt.text))
			if err == nil || s != nil || !strings.HasPrefix(err.Error(), "read schedule: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestBadScheduleIsNotWritten(t *testing.T) {
	var out bytes.Buffer
	s := &schedule.Schedule{Pods: []schedule.Pod{{Name: "nameless"}}}
	if err := s.Encode(&out); err == nil || out.Len() > 0 {
		t.Errorf("error %v and %d bytes, want one and none", err, out.Len())
	}
}

// FuzzDecode demands that what can be read is written the same way each time, and
// can be played.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(sample))
	files, err := os.ReadDir("testdata/fuzz/FuzzDecode")
	if err != nil || len(files) == 0 {
		f.Fatalf("no corpus: %v", err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := schedule.Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		text := encode(t, s)
		again := decode(t, text)
		if !reflect.DeepEqual(normal(s), normal(again)) || encode(t, again) != text {
			t.Errorf("%s is read as %+v, and as %+v", text, s, again)
		}
	})
}

// normal makes no difference between a list that is empty and none.
func normal(s *schedule.Schedule) schedule.Schedule {
	n := *s
	n.Pods, n.Steps, n.Faults = append([]schedule.Pod{}, s.Pods...), append([]schedule.Step{}, s.Steps...), append([]schedule.Fault{}, s.Faults...)
	for i := range n.Pods {
		n.Pods[i].Containers = append([]string{}, n.Pods[i].Containers...)
	}
	for i := range n.Steps {
		n.Steps[i].Containers = append([]string{}, n.Steps[i].Containers...)
	}
	return n
}
