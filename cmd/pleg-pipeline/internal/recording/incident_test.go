package recording_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestIncidents lets a container hang four times: the second time soon after the first, as a
// verdict flaps. There is one file for each incident, and no more than eight of all.
func TestIncidents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "incidents")
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		for n := range 7 {
			writeFile(t, filepath.Join(dir, fmt.Sprintf("incident-19990101T00000%dZ.jsonl.gz", n)))
		}
		writeFile(t, filepath.Join(dir, "notes"))
		runtime, log, stop := watchIncidents(t, incidents)
		for n, quiet := range []time.Duration{3 * time.Minute, time.Minute, 6 * time.Minute, 20 * time.Minute} {
			time.Sleep(quiet)
			id := hang(t, runtime)
			time.Sleep(20 * time.Second)
			runtime.Clear(id)
			if files, _ := filepath.Glob(filepath.Join(dir, "incident-*")); len(files) != 8 {
				t.Errorf("after hang %d the files are %q, want 8", n, files)
			}
		}
		stop()
		log.RequireLines(t, 3, "recorded the minutes before a problem")
		checkIncidents(t, dir)
	})
}

// TestIncidentsRetryAFullDisk cannot write at first. There is no file until all of it is written.
func TestIncidentsRetryAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		blocked := filepath.Join(dir, ".incident.jsonl.gz", "full")
		kit.Must(t, os.MkdirAll(blocked, 0o700))
		runtime, log, stop := watchIncidents(t, incidents)
		time.Sleep(time.Minute)
		hang(t, runtime)
		for want, wait := range []time.Duration{50 * time.Second, 30 * time.Second} {
			time.Sleep(wait)
			if files, _ := filepath.Glob(filepath.Join(dir, "incident-*")); len(files) != want {
				t.Errorf("%d files, want %d", len(files), want)
			}
			log.RequireLines(t, 1, "cannot record")
			_ = os.RemoveAll(filepath.Dir(blocked))
		}
		stop()
	})
}

// watchIncidents runs a pipeline on a simulated runtime until stop is called.
func watchIncidents(t *testing.T, incidents *recording.Incidents) (runtime *simruntime.Runtime, log *kit.Log, stop func()) {
	t.Helper()
	runtime, dial, _ := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 3, Containers: 1})
	client := connect(t, append(dial, incidents.DialOptions()...))
	pipe := kit.New(t, pipeline.Options{Runtime: client, RelistPeriod: 5 * time.Second})
	pipe.Start(t)
	log = new(kit.Log)
	end := kit.Run(t, func(ctx context.Context) error {
		return incidents.Run(ctx, pipe.Status, log.Logger())
	})
	return runtime, log, func() {
		_ = end()
		_ = pipe.Stop()
		_ = client.Close()
	}
}

func hang(t *testing.T, runtime *simruntime.Runtime) (id simruntime.FaultID) {
	t.Helper()
	id, err := runtime.Inject(simruntime.Fault{RPC: "ContainerStatus", Hang: true})
	kit.Must(t, err)
	for _, c := range runtime.Pods()[0].Containers {
		if c.State == simruntime.Running {
			if _, err := runtime.RestartContainer(c.ID); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	return id
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	kit.Must(t, os.WriteFile(path, nil, 0o600))
}

// checkIncidents opens what three incidents have left.
func checkIncidents(t *testing.T, dir string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 9 || !strings.HasSuffix(files[0], "incident-19990101T000002Z.jsonl.gz") || !strings.HasSuffix(files[8], "notes") {
		t.Fatalf("the files are %q, want the newest eight incidents and the file that is none", files)
	}
	for n, least := range []time.Duration{3 * time.Minute, 6 * time.Minute, 6 * time.Minute} {
		path := files[5+n]
		r, err := recording.Open(t.Context(), path)
		kit.Must(t, err)
		if r.Length < least || r.Length > 9*time.Minute || r.Cut != "" || !r.Header.Redacted || r.Runtime == nil {
			t.Errorf("%s has %v (%s), redacted %t, want a whole one of at least %v", path, r.Length, r.Cut, r.Header.Redacted, least)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
}
