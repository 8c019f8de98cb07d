package recording_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestIncidents lets a container hang four times: the second time soon after the first, as a
// verdict flaps, and the fourth time for long. There is one file for each incident, and no more than eight files
// in all.
func TestIncidents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "incidents")
		if _, err := recording.NewIncidents(filepath.Join(dir, "below"), "test"); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "mkdir "+dir) {
			t.Errorf("without the parent of the folder: %v, want that it is missing", err)
		}
		writeFile(t, dir)
		if _, err := recording.NewIncidents(dir, "test"); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("a file in place of the folder: %v", err)
		}
		kit.Must(t, os.Remove(dir))
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory: mode %v, %v, want no other user in it", info.Mode(), err)
		}
		for n := range 7 {
			writeFile(t, filepath.Join(dir, fmt.Sprintf("incident-19990101T00000%dZ.jsonl.gz", n)))
		}
		writeFile(t, filepath.Join(dir, "notes"))
		writeFile(t, filepath.Join(dir, ".incident.jsonl.gz")) // of a process that was killed
		runtime, log, stop := watchIncidents(t, incidents)
		for n, quiet := range []time.Duration{3*time.Minute + time.Second, 4*time.Minute + 30*time.Second, 5*time.Minute + 30*time.Second, 20 * time.Minute} {
			time.Sleep(quiet)
			end := hang(t, runtime)
			time.Sleep([]time.Duration{20 * time.Second, 20 * time.Second, 20 * time.Second, 20 * time.Minute}[n])
			end()
			if files, _ := filepath.Glob(filepath.Join(dir, "incident-*")); len(files) != 8 {
				t.Errorf("after hang %d the files are %q, want 8", n, files)
			}
		}
		stop()
		want := ""
		for _, at := range [][2]string{{"02:03", "0003"}, {"02:13", "0013"}, {"02:34", "0034"}} {
			want += lineOf("WARN", "recorded", dir, at[0], at[1], "")
		}
		if got := log.String(); !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("the log is\n%s, want\n%s", got, want)
		}
		checkIncidents(t, dir)
	})
}

// lineOf matches a line of the log about a pod that hangs: local times, and names of files in UTC.
func lineOf(level, what, dir, since, file, more string) string {
	return "time=\\S+ level=" + level + ` msg="` + what + ` the minutes before a problem" verdict="PROBLEM: shop/checkout-\S+ hangs since ` + since + `( in ContainerStatus of checkout)?" ` +
		`file=` + regexp.QuoteMeta(dir) + "/incident-20000101T" + file + `\d\dZ\.jsonl\.gz` + regexp.QuoteMeta(more) + "\n"
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
		time.Sleep(time.Minute + time.Second)
		hang(t, runtime)
		for want, wait := range []time.Duration{50 * time.Second, 30 * time.Second} {
			time.Sleep(wait)
			if files, _ := filepath.Glob(filepath.Join(dir, "incident-*")); len(files) != want {
				t.Errorf("%d files, want %d", len(files), want)
			}
			failed := lineOf("ERROR", "cannot record", dir, "02:01", "0001", ` err="remove `+dir+`/.incident.jsonl.gz: directory not empty" retryIn=1m0s`)
			if got := log.String(); !regexp.MustCompile("^" + failed).MatchString(got) {
				t.Errorf("the log is\n%s, want\n%s", got, failed)
			}
			log.RequireLines(t, 1, "cannot record")
			_ = os.RemoveAll(filepath.Dir(blocked))
		}
		stop()
	})
}

// A folder in the place of the file is an error that names both.
func TestIncidentCannotGetItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		for second := range 60 {
			kit.Must(t, os.Mkdir(filepath.Join(dir, fmt.Sprintf("incident-20000101T0001%02dZ.jsonl.gz", second)), 0o700))
		}
		runtime, log, stop := watchIncidents(t, incidents)
		time.Sleep(time.Minute + time.Second)
		hang(t, runtime)
		time.Sleep(50 * time.Second)
		stop()
		failed := regexp.MustCompile(`msg="cannot record the minutes before a problem" .* err="rename \S+/\.incident\.jsonl\.gz \S+/incident-20000101T0001\d\dZ\.jsonl\.gz: file exists" retryIn=1m0s`)
		if !failed.MatchString(log.String()) || log.Count("recorded") > 0 {
			t.Errorf("the log is\n%s, want %s", log, failed)
		}
	})
}

// A small file fails only when it is closed. The limit of the size of a file is that of a process.
func TestIncidentOnAFullDisk(t *testing.T) {
	if os.Getenv("FULL_DISK") == "" {
		limited := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -f 0; exec "$0" -test.run="^$1$"`, os.Args[0], t.Name())
		limited.Env = append(os.Environ(), "FULL_DISK=1")
		if out, err := limited.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		runtime, log, stop := watchIncidents(t, incidents)
		time.Sleep(time.Minute + time.Second)
		hang(t, runtime)
		time.Sleep(50 * time.Second)
		stop()
		if files, _ := os.ReadDir(dir); len(files) > 0 || !strings.Contains(log.String(), `/.incident.jsonl.gz: file too large" retryIn=1m0s`) {
			t.Errorf("the files are %v, want none after an error; the log is\n%s", files, log)
		}
	})
}

// A problem that ended before its file could be written has no file, also if it comes back soon.
func TestNoIncidentAfterItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		kit.Must(t, os.MkdirAll(filepath.Join(dir, ".incident.jsonl.gz", "full"), 0o700))
		runtime, log, stop := watchIncidents(t, incidents)
		for range 2 {
			time.Sleep(61 * time.Second)
			end := hang(t, runtime)
			time.Sleep(20 * time.Second)
			end()
			_ = os.RemoveAll(filepath.Join(dir, ".incident.jsonl.gz"))
		}
		stop()
		if files, _ := os.ReadDir(dir); len(files) > 0 || log.Count("cannot record") != 1 {
			t.Errorf("the files are %v, want none after an error; the log is\n%s", files, log)
		}
	})
}

// A file begins with lists, so there is none if the runtime has never listed its pods.
func TestNoIncidentBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		_, _, stop := watchIncidents(t, incidents, simruntime.Fault{RPC: "ListPodSandbox", Hang: true})
		time.Sleep(10 * time.Minute)
		stop()
		if files, _ := os.ReadDir(dir); len(files) > 0 {
			t.Errorf("the files are %v, want none", files)
		}
	})
}

// watchIncidents runs a pipeline on a simulated runtime until stop is called.
func watchIncidents(t *testing.T, incidents *recording.Incidents, faults ...simruntime.Fault) (runtime *simruntime.Runtime, log *kit.Log, stop func()) {
	t.Helper()
	runtime, dial, _ := newRuntime(t, simruntime.Options{Seed: 1, Faults: faults}, simruntime.Population{Pods: 3, Containers: 1})
	client := connect(t, append(dial, incidents.DialOptions()...))
	pipe := kit.New(t, pipeline.Options{Runtime: client, RelistPeriod: 5 * time.Second})
	pipe.Start(t)
	log = new(kit.Log)
	end := kit.Run(t, func(ctx context.Context) error {
		return incidents.Run(ctx, pipe.Look, log.Logger())
	})
	return runtime, log, func() {
		_ = end()
		_ = pipe.Stop()
		_ = client.Close()
	}
}

func hang(t *testing.T, runtime *simruntime.Runtime) (end func()) {
	t.Helper()
	end = runtime.Inject(simruntime.Fault{RPC: "ContainerStatus", Hang: true})
	for _, c := range runtime.Pods()[0].Containers {
		if c.State == pleg.StateRunning {
			if _, err := runtime.RestartContainer(c.ID); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	return end
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	kit.Must(t, os.WriteFile(path, nil, 0o600))
}

// checkIncidents opens the files of three incidents.
func checkIncidents(t *testing.T, dir string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 9 || !strings.HasSuffix(files[0], "incident-19990101T000002Z.jsonl.gz") || !strings.HasSuffix(files[8], "notes") {
		t.Fatalf("the files are %q, want the newest eight incidents and the file that is none", files)
	}
	for n, least := range []time.Duration{3 * time.Minute, 7*time.Minute + 50*time.Second, 7*time.Minute + 50*time.Second} {
		path := files[5+n]
		r, err := recording.Open(t.Context(), path)
		kit.Must(t, err)
		if r.Length < least || r.Length > 8*time.Minute+time.Second || r.Cut != "" || !r.Header.Redacted || r.Header.Program != "test" || r.Runtime.GetRuntimeName() != "simruntime" {
			t.Errorf("%s has %v (%s) of %v: %+v, want a whole one of at least %v", path, r.Length, r.Cut, r.Runtime, r.Header, least)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
}

// TestIncidentKeepsTheCause uses a shim that stops, and then a disk that gets full beside a client that does
// not read: no answer of the runtime shows them. Each step is an incident. A replay names the problem and the
// redacted pod, and not the client, whose name may tell who uses the node.
func TestIncidentKeepsTheCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		incidents, err := recording.NewIncidents(dir, "test")
		kit.Must(t, err)
		runtime, dial, _ := newRuntime(t, simruntime.Options{Seed: 1}, simruntime.Population{Pods: 3, Containers: 1})
		client := connect(t, append(dial, incidents.DialOptions()...))
		pod := runtime.Pods()[0]
		var node atomic.Pointer[pleg.Status]
		node.Store(&pleg.Status{})
		pipe := kit.New(t, pipeline.Options{Runtime: client})
		pipe.Start(t)
		stop := kit.Run(t, func(ctx context.Context) error {
			return incidents.Run(ctx, func() pleg.Status {
				s, _ := pipe.Status(ctx)
				s.Details = node.Load().Details
				return s
			}, new(kit.Log).Logger())
		})
		time.Sleep(time.Minute)
		stuck := nodestate.Stuck{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Since: time.Now(), Shim: &nodestate.Process{PID: 7, Name: "containerd-shim", State: "T"}}
		node.Store(&pleg.Status{Details: nodestate.State{Stuck: []nodestate.Stuck{stuck}}})
		time.Sleep(10 * time.Second)
		unread := nodestate.Unread{Since: time.Now(), Client: &nodestate.Process{PID: 8, Name: "acme-agent", State: "S"}, Bytes: 9}
		node.Store(&pleg.Status{Details: nodestate.State{
			Stuck: []nodestate.Stuck{stuck}, Unread: []nodestate.Unread{unread}, Disk: &nodestate.Disk{Since: time.Now(), Path: "/images", Used: 99},
		}})
		time.Sleep(10 * time.Second)
		_ = stop()
		_ = pipe.Stop()
		_ = client.Close()
		files, _ := filepath.Glob(filepath.Join(dir, "incident-*"))
		if len(files) != 2 {
			t.Fatalf("the files are %q, want one for each cause", files)
		}
		r, err := recording.Open(t.Context(), files[1])
		kit.Must(t, err)
		server := recording.NewServer(r)
		early := pleg.Report{}
		if server.Report(&early); len(nodestate.Of(early.Details).Stuck) > 0 {
			t.Errorf("the replay begins with %+v, want no problem yet", early)
		}
		again, _ := serving(t, server.Serve)
		client = connect(t, again)
		pipe = kit.New(t, pipeline.Options{Runtime: client})
		pipe.Start(t)
		time.Sleep(r.Length + time.Second)
		s, report := pipe.Look(), pleg.Report{}
		server.Report(&report)
		report = pleg.Report{}
		server.Report(&report) // as the first time
		s.Details = report.Details
		found := nodestate.Of(s.Details).Stuck
		if disk := nodestate.Of(s.Details).Disk; disk == nil || len(found) != 1 || disk.Since.Sub(found[0].Since) != 10*time.Second {
			t.Errorf("the disk is %+v beside %+v, want it 10 s later", disk, found)
		}
		v := verdict.Of(s)
		entries := pipe.Cache().List()
		_ = pipe.Stop()
		_ = client.Close()
		known := slices.ContainsFunc(entries, func(e cache.Entry) bool {
			return e.Last != nil && len(found) > 0 && e.UID == found[0].UID && e.Last.Name == found[0].Name && e.Last.Namespace == found[0].Namespace
		})
		if len(v.Findings) != 3 || v.Findings[0].Cause != verdict.HungShim || !strings.Contains(v.Text, "containerd-shim, PID 7, is stopped by a signal") ||
			!strings.Contains(v.Text, " (1") || strings.Contains(v.Text, pod.Name) || strings.Contains(v.Full(), "/images") || strings.Contains(v.Full(), "acme") || !known {
			t.Errorf("the replay says %s, of a pod of the recording: %t", v.Full(), known)
		}
	})
}
