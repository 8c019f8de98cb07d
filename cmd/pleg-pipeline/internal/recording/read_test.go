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
		"nothing":                    {"", "empty"},
		"half a header":              {header[:40], "not a recording"},
		"other text":                 {"hello\n", "not a recording"},
		"other text without end":     {"hello", "not a recording"},
		"other JSON":                 {"{}\n", "not a recording"},
		"other compressed":           {"\x1f\x8b hello, hello, hello", "gzip"},
		"a newer format":             {strings.Replace(header, `"version":3`, `"version":4,"began":7`, 1), "it has format 4, this program reads format 3"},
		"an older format":            {strings.Replace(header, `"version":3`, `"version":1`, 1), "another version"},
		"an invalid time":            {strings.Replace(header, `2026`, `MMXXVI`, 1), "line "},
		"a line without JSON":        {header + "\x00\x00\n" + end, "line "},
		"a damaged last line":        {header + list[:30] + "\n", "line "},
		"a line after the end":       {header + end + list, "line "},
		"an unknown method":          {header + "{}\n", `line 2: unknown method ""`},
		"a negative time":            {header + strings.Replace(list, "0s", "-1s", 1), "line "},
		"an unknown code":            {header + `{"at":"1s","method":"Version","error":{"code":"Broken"}}` + "\n", "line "},
		"a list without items":       {header + `{"at":"1s","method":"ListContainers"}` + "\n", "line "},
		"an item that was not there": {header + list + strings.Replace(list, `{"id":"a"}`, `0,1`, 1), "line "},
		"a negative item":            {header + list + strings.Replace(list, `{"id":"a"}`, `-1`, 1), "line "},
		"an item of another kind":    {header + strings.Replace(list, `{"id":"a"}`, `"a"`, 1), "line "},
		"an invalid request":         {header + `{"at":"1s","method":"ContainerStatus","request":{"containerId":7},"answer":{}}` + "\n", "line "},
		"a status without answer":    {header + `{"at":"1s","method":"ContainerStatus"}` + "\n", "line "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := recording.Read(t.Context(), strings.NewReader(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
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

// TestReadIsBounded reads recordings that are small when compressed.
func TestReadIsBounded(t *testing.T) {
	recording.DivideLimits(t, 64)
	many := `{"at":"1s","method":"ListPodSandbox","list":[` + strings.Repeat(`{},`, 999) + `{}]}` + "\n"
	kept := `{"at":"1s","method":"ListPodSandbox","list":[` + strings.Repeat(`0,`, 999) + `0]}` + "\n"
	labels := `{"at":"1s","method":"ListPodSandbox","list":[{"labels":{"a":"b"`
	for i := range 1000 {
		labels += fmt.Sprintf(`,"%d":""`, i)
	}
	labels += "}}]}\n"
	for name, test := range map[string]struct {
		content io.Reader
		limit   string
	}{
		"one long line":   {repeated("", strings.Repeat(" ", 1<<20), 5), "4194304 bytes"},
		"many lines":      {repeated("", list[:len(list)-1]+strings.Repeat(" ", 1<<10)+"\n", 5_000), "4194304 bytes"},
		"many new items":  {repeated("", many, 200), "98304 fields"},
		"many labels":     {repeated("", labels, 200), "98304 fields"},
		"many kept items": {repeated(many, kept, 300), "262144 items"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := recording.Read(t.Context(), test.content)
			if err == nil || !strings.Contains(err.Error(), test.limit) {
				t.Errorf("error %v, want %q", err, test.limit)
			}
		})
	}
}

// TestReadEndsWithContext reads a long file.
func TestReadEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	long := repeated("", list, 1000)
	cancel()
	if _, err := recording.Read(ctx, long); !errors.Is(err, context.Canceled) {
		t.Errorf("Read() = %v, want %v", err, context.Canceled)
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

// TestReadOfCutRecording cuts a recording off everywhere, plain and compressed: all whole lines are
// used.
func TestReadOfCutRecording(t *testing.T) {
	t.Parallel()
	data := []byte(header + strings.Repeat(list, 3) + end)
	for n := range data {
		r, err := recording.Read(t.Context(), bytes.NewReader(data[:n]))
		switch inLine := n > len(header) && data[n-1] != '\n'; {
		case n < len(header)-1:
			if err == nil {
				t.Fatalf("%d bytes: no error, want one", n)
			}
		case err != nil || r.Cut == "" || r.Length > time.Millisecond || inLine != strings.Contains(r.Cut, "is left out"):
			t.Fatalf("%d bytes, within a line %t: %+v, %v; want a recording that is cut off", n, inLine, r, err)
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
	for _, name := range []string{"plain.jsonl", "small.jsonl.gz"} {
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
		if _, err := recording.Create(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s created twice: %v, want that it exists", name, err)
		}
	}
	if _, err := recording.Open(t.Context(), "/nonexistent/r"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
