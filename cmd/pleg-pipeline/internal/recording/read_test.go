package recording_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const (
	header = `{"format":"pleg-pipeline recording","version":1,"began":"2026-01-02T03:04:05Z"}` + "\n"
	list   = `{"at":"1s","took":"1ms","call":"ListPodSandbox","list":[{"put":{"id":"a"}}]}` + "\n"
	end    = `{"at":"2s","end":true}` + "\n"
)

func TestReadRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"nothing":                  {"", recording.ErrEmpty},
		"half a header":            {header[:40], recording.ErrEmpty},
		"a header without its end": {strings.TrimSuffix(header, "\n"), recording.ErrEmpty},
		"other text":               {"hello\n", recording.ErrForeign},
		"other text without end":   {"hello", recording.ErrForeign},
		"other JSON":               {"{}\n", recording.ErrForeign},
		"other compressed":         {"\x1f\x8b hello, hello, hello", recording.ErrForeign},
		"a newer format":           {strings.Replace(header, `"version":1`, `"version":2,"began":7`, 1), recording.ErrNewer},
		"no format":                {strings.Replace(header, `"version":1`, `"version":0`, 1), recording.ErrCorrupt},
		"a time that is none":      {strings.Replace(header, `2026`, `MMXXVI`, 1), recording.ErrCorrupt},
		"a line that is no JSON":   {header + "\x00\x00\n" + end, recording.ErrCorrupt},
		"a damaged last line":      {header + list[:30] + "\n", recording.ErrCorrupt},
		"a line behind the end":    {header + end + list, recording.ErrCorrupt},
		"a line of nothing":        {header + "{}\n", recording.ErrCorrupt},
		"a negative time":          {header + strings.Replace(list, "1s", "-1s", 1), recording.ErrCorrupt},
		"an unknown code":          {header + `{"at":"1s","call":"Version","error":{"code":"Broken"}}` + "\n", recording.ErrCorrupt},
		"a list of nothing":        {header + `{"at":"1s","call":"ListContainers"}` + "\n", recording.ErrCorrupt},
		"more than there was":      {header + list + strings.Replace(list, `{"put":{"id":"a"}}`, `{"keep":[0,2]}`, 1), recording.ErrCorrupt},
		"before the beginning":     {header + list + strings.Replace(list, `{"put":{"id":"a"}}`, `{"keep":[-1,1]}`, 1), recording.ErrCorrupt},
		"the same as nothing":      {header + `{"at":"1s","call":"ContainerStatus","id":"a","same":true}` + "\n", recording.ErrCorrupt},
		"a status of nothing":      {header + `{"at":"1s","call":"ContainerStatus","id":"a"}` + "\n", recording.ErrCorrupt},
		"an event of another kind": {header + `{"at":"1s","call":"GetContainerEvents","stream":1,"answer":{"createdAt":"x"}}` + "\n", recording.ErrCorrupt},
		"a list that doubles":      {header + list + doubling(), recording.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := recording.Read(strings.NewReader(test.text)); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

// doubling is a list that is twice as long with each line.
func doubling() string {
	var b strings.Builder
	for n := 1; n < 1<<20; n *= 2 {
		b.WriteString(strings.ReplaceAll(`{"at":"1s","call":"ListPodSandbox","list":[{"keep":[0,N]},{"keep":[0,N]}]}`+"\n", "N", strconv.Itoa(n)))
	}
	return b.String()
}

func TestReadUnderstandsWhatIsLater(t *testing.T) {
	r, err := recording.Read(strings.NewReader(header + list +
		`{"at":"1.5s","call":"PodSandboxStats","id":"a","answer":{"x":1}}` + "\n" +
		`{"at":"1.6s","call":"ListPodSandbox","list":[{"keep":[0,1]},{"put":{"id":"b","colour":"red"}}],"mood":"good"}` + "\n" + end))
	if err != nil || r.Cut != "" || r.Length != 2*time.Second {
		t.Errorf("got %+v, %v; want a whole recording of 2s", r, err)
	}
}

// TestReadCutAnywhere cuts a recording off in many places of each line, compressed
// and not: what is whole is used.
func TestReadCutAnywhere(t *testing.T) {
	var data []byte
	synctest.Test(t, func(t *testing.T) {
		_, data = scene{pods: 1, simulated: simruntime.Options{Seed: 1}, play: churn(5, 5)}.record(t)
	})
	whole, err := recording.Read(bytes.NewReader(data))
	if err != nil || whole.Cut != "" {
		t.Fatalf("whole: %q, %v", whole.Cut, err)
	}
	const stride = 23
	first := bytes.IndexByte(data, '\n') + 1
	for n := 0; n < len(data); n += stride {
		r, err := recording.Read(bytes.NewReader(data[:n]))
		if n < first {
			if !errors.Is(err, recording.ErrEmpty) {
				t.Fatalf("%d bytes: %v, want that it is empty", n, err)
			}
			continue
		}
		if err != nil || r.Cut == "" || r.Length > whole.Length {
			t.Fatalf("%d bytes: %+v, %v; want a recording that is cut off", n, r, err)
		}
		if inLine := data[n-1] != '\n'; inLine != strings.Contains(r.Cut, "is left out") {
			t.Fatalf("%d bytes, within a line: %t; it is said: %s", n, inLine, r.Cut)
		}
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < zipped.Len(); n += stride {
		r, err := recording.Read(bytes.NewReader(zipped.Bytes()[:n]))
		if errors.Is(err, recording.ErrEmpty) || n == 1 && errors.Is(err, recording.ErrForeign) {
			continue
		}
		if err != nil || r.Cut == "" && r.Length != whole.Length {
			t.Fatalf("%d of %d compressed bytes: %+v, %v; want a recording that is cut off", n, zipped.Len(), r, err)
		}
	}
}

// TestReplayOfCutRecording plays what there is, and comes to an end.
func TestReplayOfCutRecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, data := scene{pods: 5, simulated: simruntime.Options{Seed: 1}, play: churn(8, 60)}.record(t)
		for _, part := range []int{2, 3, 4} {
			if saw := replay(t, data[:len(data)/part], 1, pipeline.Options{}, false); saw.total < 15 {
				t.Errorf("of a part of 1/%d only %d events are seen", part, saw.total)
			}
		}
	})
}

func TestFile(t *testing.T) {
	for _, name := range []string{"plain.jsonl", "small.jsonl.gz"} {
		path := filepath.Join(t.TempDir(), name)
		file, err := recording.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(header + list)); err != nil {
			t.Fatal(err)
		}
		if err := file.Flush(); err != nil {
			t.Fatal(err)
		}
		// As if it were killed now.
		if r, err := recording.Open(path); err != nil || r.Cut == "" || r.Length < time.Second {
			t.Errorf("%s, flushed: %+v, %v; want one that is cut off", name, r, err)
		}
		if _, err := file.Write([]byte(end)); err != nil {
			t.Fatal(err)
		}
		size, err := file.Close()
		info, statErr := os.Stat(path)
		if err := errors.Join(err, statErr); err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 || info.Size() != size {
			t.Errorf("%s has mode %v and %d bytes, want 0600 and %d", name, info.Mode(), info.Size(), size)
		}
		if r, err := recording.Open(path); err != nil || r.Cut != "" || r.Length != 2*time.Second {
			t.Errorf("%s: %+v, %v; want a whole one of 2s", name, r, err)
		}
		if _, err := recording.Create(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s made twice: %v, want that it exists", name, err)
		}
	}
	if _, err := recording.Open("/nonexistent/r"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
