package recording_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const (
	header = `{"format":"pleg-pipeline recording","version":3,"began":"2026-01-02T03:04:05Z"}` + "\n"
	list   = `{"at":"0s","took":"1ms","method":"ListPodSandbox","list":[{"id":"a"}]}` + "\n"
	end    = `{"at":"2s","end":true}` + "\n"
)

func TestReadRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"nothing":                    {"", "the recording is empty"},
		"half a header":              {header[:40], "it is not a recording of pleg-pipeline"},
		"other text":                 {"hello\n", "it is not a recording of pleg-pipeline"},
		"other text without end":     {"hello", "it is not a recording of pleg-pipeline"},
		"other JSON":                 {"{}\n", "it is not a recording of pleg-pipeline"},
		"other compressed":           {"\x1f\x8b hello, hello, hello", "gzip: invalid header"},
		"half a compressed header":   {"\x1f\x8b\x08", "the recording is empty"},
		"damaged compression":        {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xff\xff", "flate: corrupt input before offset …"},
		"a newer format":             {strings.Replace(header, `"version":3`, `"version":4,"began":7`, 1), "it was made by another version of pleg-pipeline: it has format 4, this program reads format 3"},
		"an older format":            {strings.Replace(header, `"version":3`, `"version":1`, 1), "it was made by another version of pleg-pipeline: it has format 1, this program reads format 3"},
		"an invalid time":            {strings.Replace(header, `2026`, `MMXXVI`, 1), "line 1: parsing time …"},
		"a line without JSON":        {header + "\x00\x00\n" + end, "line 2: invalid character …"},
		"a damaged last line":        {header + list[:30] + "\n", "line 2: invalid character …"},
		"a line after the end":       {header + end + list, "line 3: it is after the end"},
		"an unknown method":          {header + `{"method":"Exec"}` + "\n", `line 2: unknown method "Exec"`},
		"a negative time":            {header + strings.Replace(list, "0s", "-1s", 1), "line 2: negative time -1s"},
		"an unknown code":            {header + `{"at":"1s","method":"Version","error":{"code":"Broken"}}` + "\n", `line 2: unknown code "Broken"`},
		"a list without items":       {header + `{"at":"1s","method":"ListContainers"}` + "\n", "line 2: a list without items, same or an error"},
		"the same as none":           {header + `{"at":"1s","method":"ListContainers","same":true}` + "\n", "line 2: a list without items, same or an error"},
		"an item that was not there": {header + list + strings.Replace(list, `{"id":"a"}`, `0,1`, 1), "line 3: item 1 is not in the previous list"},
		"a negative item":            {header + list + strings.Replace(list, `{"id":"a"}`, `-1`, 1), "line 3: item -1 is not in the previous list"},
		"an item of another kind":    {header + strings.Replace(list, `{"id":"a"}`, `"a"`, 1), `line 2: item "a" is not in the previous list`},
		"an invalid request":         {header + `{"at":"1s","method":"ContainerStatus","request":{"containerId":7},"answer":{}}` + "\n", "line 2: …"},
		"a status without answer":    {header + `{"at":"1s","method":"ContainerStatus"}` + "\n", "line 2: no answer in it"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := recording.Read(t.Context(), strings.NewReader(test.text)); err == nil || !matches(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// matches reports whether a text is as wanted, up to an ellipsis: what follows there is not of this program.
func matches(text, want string) bool {
	before, cut := strings.CutSuffix(want, "…")
	return text == want || cut && strings.HasPrefix(text, before)
}

// repeated returns a reader of a recording with the same lines many times, without keeping
// them in memory.
func repeated(first, line string, times int) io.Reader {
	parts := []io.Reader{strings.NewReader(header + first)}
	for range times {
		parts = append(parts, strings.NewReader(line))
	}
	return io.MultiReader(parts...)
}

// TestReadIsBounded reads as much of recordings as the limits allow. They are small when compressed. The memory stays
// below the limit.
func TestReadIsBounded(t *testing.T) {
	limit := recording.DivideLimits(t, 256)
	sandboxes := func(items string) string { return `{"at":"1s","method":"ListPodSandbox","list":[` + items + "]}\n" }
	status := func(method, answer string) string {
		return `{"at":"1s","method":"` + method + `","answer":{` + answer + "}}\n"
	}
	many := func(item string) string { return strings.Repeat(item+",", 999) + item }
	labels := `"":""`
	for i := range 1000 {
		labels += fmt.Sprintf(`,"%d":""`, i)
	}
	spaces := strings.Repeat(" ", 1<<20)
	for name, r := range map[string]io.Reader{"one long line": repeated("", spaces, 2), "a long first line": strings.NewReader(spaces)} {
		if _, err := recording.Read(t.Context(), r); err == nil || err.Error() != "a line is too large: the limit is 262144 bytes" {
			t.Errorf("%s: %v, want that it is too large", name, err)
		}
	}
	largest := header
	for len(largest) < 1<<20 { // spaces that end a line take no memory
		largest += list[:len(list)-1] + spaces[:min(1<<17, 1<<20-len(largest))-len(list)] + "\n"
	}
	for text, ok := range map[string]bool{largest: true, largest + "\n": false} {
		if _, err := recording.Read(t.Context(), strings.NewReader(text)); (err == nil) != ok {
			t.Errorf("%d bytes: %v, the limit is 1048576", len(text), err)
		}
	}
	const tooMuch = ": the recording is too large: it would take more than 2097152 bytes of memory"
	for name, test := range map[string]struct{ first, line, want string }{
		"long lines":         {"", list[:len(list)-1] + strings.Repeat(" ", 1<<16) + "\n", "the recording is too large: the limit is 1048576 bytes"},
		"new sandboxes":      {"", sandboxes(many("{}")), tooMuch},
		"new containers":     {"", `{"at":"1s","method":"ListContainers","list":[` + many("{}") + "]}\n", tooMuch},
		"labels":             {"", sandboxes(`{"labels":{` + labels + "}}"), tooMuch},
		"kept items":         {sandboxes(many("{}")), sandboxes(many("0")), tooMuch},
		"texts":              {"", status("PodSandboxStatus", `"status":{"network":{"additionalIps":[`+many("{}")+`]}}`), tooMuch},
		"statuses":           {"", status("ContainerStatus", `"status":{}`), tooMuch},
		"mounts":             {"", status("ContainerStatus", `"status":{"mounts":[`+many("{}")+`]}`), tooMuch},
		"carried statuses":   {"", status("PodSandboxStatus", `"containersStatuses":[`+many("{}")+`]`), tooMuch},
		"info":               {"", status("ContainerStatus", `"info":{`+labels+`}`), tooMuch},
		"calls that fail":    {"", `{"at":"1s","method":"ListPodSandbox","error":{"code":"Canceled"}}` + "\n", "bytes"},
		"calls of no answer": {"", `{"at":"1s","method":"Version","pending":true}` + "\n", tooMuch},
		"the node":           {"", `{"at":"1s","node":{"troubles":[` + many("{}") + `],"unread":[` + many("{}") + "]}}\n", tooMuch},
		"the same lists":     {sandboxes("{}"), `{"at":"1s","method":"ListPodSandbox","same":true}` + "\n", tooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			const without = 100_000
			_, err := recording.Read(t.Context(), repeated(test.first, test.line, without))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			lines := without
			if _, scanErr := fmt.Sscanf(err.Error(), "line %d:", &lines); scanErr != nil {
				lines = (1<<20)/len(test.line) + 2
			}
			before := heap()
			r, err := recording.Read(t.Context(), repeated(test.first, test.line, lines-4))
			kit.Must(t, err)
			if took := heap() - before; took > limit {
				t.Errorf("%d lines take %d bytes, the limit is %d", lines-4, took, limit)
			}
			runtime.KeepAlive(r)
		})
	}
}

// heap returns the bytes in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestReadEndsWithContext reads a long file.
func TestReadEndsWithContext(t *testing.T) {
	errInterrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	long := repeated("", list, 1000)
	cancel(errInterrupted)
	if _, err := recording.Read(ctx, long); !errors.Is(err, errInterrupted) {
		t.Errorf("Read() = %v, want %v", err, errInterrupted)
	}
	if rest, _ := io.Copy(io.Discard, long); rest == 0 {
		t.Error("the file was read to its end")
	}
}

// TestReadIgnoresUnknownFields reads fields of a later CRI.
func TestReadIgnoresUnknownFields(t *testing.T) {
	r, err := recording.Read(t.Context(), strings.NewReader(header+list+
		`{"at":"1.6s","method":"ListPodSandbox","list":[0,{"id":"b","colour":"red"}],"mood":"good"}`+"\n"+end))
	if err != nil || r.Cut != "" || r.Length != 2*time.Second {
		t.Errorf("got %+v, %v; want a whole recording of 2s", r, err)
	}
}

// A recording begins with its first line, however long the recorder waited for it.
func TestRecordingBeginsWithItsFirstLine(t *testing.T) {
	r, err := recording.Read(t.Context(), strings.NewReader(header+strings.Replace(list, "0s", "1m0s", 1)+`{"at":"1m2s","end":true}`+"\n"))
	kit.Must(t, err)
	if r.Length != 2*time.Second || !r.Header.Began.Equal(time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)) {
		t.Errorf("it has %v since %v, want 2s since a minute after its header", r.Length, r.Header.Began)
	}
}

// A recording lasts until its last call has ended, in whatever order the calls are.
func TestRecordingLastsUntilTheLastCall(t *testing.T) {
	r, err := recording.Read(t.Context(), strings.NewReader(header+strings.Replace(list, "1ms", "9s", 1)+strings.Replace(list, "0s", "3s", 1)+end))
	if err != nil || r.Length != 9*time.Second || r.Cut != "" {
		t.Errorf("it has %+v, %v, want 9s", r, err)
	}
}

// TestReadOfCutRecording cuts a recording off everywhere, plain and compressed: all whole lines are
// used.
func TestReadOfCutRecording(t *testing.T) {
	t.Parallel()
	data := []byte(header + strings.Repeat(list, 3) + end)
	for n := range data {
		r, err := recording.Read(t.Context(), bytes.NewReader(data[:n]))
		cut := "it has no end: the recorder was killed, or the file is not complete"
		if n > len(header) && data[n-1] != '\n' {
			cut = fmt.Sprintf("line %d is cut off and is left out", 1+bytes.Count(data[:n], []byte("\n")))
		}
		switch {
		case n < len(header)-1:
			if err == nil {
				t.Fatalf("%d bytes: no error, want one", n)
			}
		case err != nil || r.Cut == "" || r.Length > time.Millisecond || r.Cut != cut:
			t.Fatalf("%d bytes: %+v, %v; want a recording with %q", n, r, err, cut)
		}
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write(data)
	kit.Must(t, errors.Join(err, w.Close()))
	for n := 1; n < zipped.Len(); n++ {
		r, err := recording.Read(t.Context(), bytes.NewReader(zipped.Bytes()[:n]))
		if err != nil && (strings.Contains(err.Error(), "empty") || strings.Contains(err.Error(), "not a recording")) {
			continue
		}
		if err != nil || r.Cut == "" && r.Length != 2*time.Second {
			t.Fatalf("%d of %d compressed bytes: %+v, %v; want a recording that is cut off", n, zipped.Len(), r, err)
		}
	}
}

func TestFile(t *testing.T) {
	for _, name := range []string{"plain.jsonl", "small.gz"} {
		path := filepath.Join(t.TempDir(), name)
		file, err := recording.Create(path)
		kit.Must(t, err)
		_, err = file.Write([]byte(header + list))
		kit.Must(t, errors.Join(err, file.Flush()))
		// As if the process were killed now.
		if r, err := recording.Open(t.Context(), path); err != nil || r.Cut == "" || r.Length != time.Millisecond {
			t.Errorf("%s, flushed: %+v, %v; want a recording that is cut off", name, r, err)
		}
		_, writeErr := file.Write([]byte(end))
		size, err := file.Close()
		info, statErr := os.Stat(path)
		kit.Must(t, errors.Join(writeErr, err, statErr))
		if info.Mode() != 0o600 || info.Size() != size {
			t.Errorf("%s has mode %v and %d bytes, want 0600 and %d", name, info.Mode(), info.Size(), size)
		}
		if r, err := recording.Open(t.Context(), path); err != nil || r.Cut != "" || r.Length != 2*time.Second {
			t.Errorf("%s: %+v, %v; want a whole one of 2s", name, r, err)
		}
		text, err := os.ReadFile(path)
		kit.Must(t, err)
		if plain := strings.HasPrefix(string(text), header); plain == strings.HasSuffix(name, ".gz") {
			t.Errorf("%s begins with %q", name, text[:10])
		}
		if _, err := recording.Create(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s created twice: %v, want that it exists", name, err)
		}
	}
	if _, err := recording.Open(t.Context(), "/nonexistent/r"); !errors.Is(err, fs.ErrNotExist) || err.Error() != "replay: open /nonexistent/r: no such file or directory" {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := recording.Open(t.Context(), "/dev/null"); err == nil || err.Error() != "replay /dev/null: the recording is empty" {
		t.Errorf("an empty file: %v", err)
	}
}
