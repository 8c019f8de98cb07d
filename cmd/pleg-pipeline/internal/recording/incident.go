package recording

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lookPeriod is the time between two looks at the verdict.
	lookPeriod = time.Second
	// incidentEnds is how long the verdict must be good before another incident: a verdict that
	// flaps is one.
	incidentEnds = 5 * time.Minute
	// maxIncidents is how many files there are; a new one replaces the oldest.
	maxIncidents = 8
	// incidentQueue is how many answers may wait, which need memory: a list of 1000 pods has a MB.
	incidentQueue = 1024
)

// Incidents writes the last minutes of a runtime's answers to a file when the verdict on the
// pipeline becomes a problem.
type Incidents struct {
	// Dir is the folder of the files.
	Dir string
	// Recorder taps the client; see [NewIncidentRecorder].
	Recorder *Recorder
	// Status is that of the pipeline.
	Status func() pleg.Status
	Logger *slog.Logger
}

// NewIncidentRecorder returns a recorder that keeps the last minutes, redacted.
func NewIncidentRecorder(program string) *Recorder {
	return NewRecorder(NewWindow(), Options{Program: program, Redact: true, Queue: incidentQueue})
}

// CheckDir creates the folder, but not its parents, and returns an error if no file can be
// created in it.
func CheckDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	file, err := os.CreateTemp(dir, ".incident-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// Run runs the recorder and looks at the verdict until ctx ends, and returns the cause. An
// error of a recording is only logged.
func (i Incidents) Run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := i.Recorder.Run(); err != nil {
			i.Logger.ErrorContext(ctx, "no longer recording the last minutes", "err", err)
		}
	}()
	i.look(ctx)
	i.Recorder.Stop()
	<-ended
	return context.Cause(ctx)
}

// look waits until the verdict is no problem, as a program that starts during an incident has
// nothing from before it, then until it is one, and so on.
func (i Incidents) look(ctx context.Context) {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	var good time.Time // since when it is no problem; zero if it is one
	var ready bool
	var wait time.Duration
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		s := i.Status()
		switch v := verdict.Of(s); {
		case v.Severity == verdict.Problem:
			if ready {
				i.write(ctx, v.Lasting())
			}
			good, ready, wait = time.Time{}, false, incidentEnds
		case s.Relist.Success.IsZero():
		case good.IsZero():
			good = time.Now()
			fallthrough
		default:
			ready = ready || time.Since(good) >= wait
		}
	}
}

// write writes a file and then removes the oldest ones. Without a whole file it removes none.
func (i Incidents) write(ctx context.Context, why string) {
	path := filepath.Join(i.Dir, time.Now().UTC().Format("incident-20060102T150405Z.jsonl.gz"))
	file, err := Create(path)
	if err == nil {
		err = i.Recorder.Save(ctx, file)
		_, closeErr := file.Close()
		if err = errors.Join(err, closeErr); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}
	if err != nil {
		i.Logger.ErrorContext(ctx, "cannot record the minutes before a problem", "file", path, "verdict", why, "err", err)
		return
	}
	i.Logger.WarnContext(ctx, "recorded the minutes before a problem", "file", path, "verdict", why)
	if err := i.removeOldest(); err != nil {
		i.Logger.ErrorContext(ctx, "cannot remove the oldest recordings", "err", err)
	}
}

// removeOldest removes what is more than maxIncidents files.
func (i Incidents) removeOldest() error {
	files, _ := filepath.Glob(filepath.Join(i.Dir, "incident-*.jsonl.gz")) // sorted by time
	var errs []error
	for _, file := range files[:max(0, len(files)-maxIncidents)] {
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}
