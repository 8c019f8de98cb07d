package recording

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	lookPeriod = time.Second
	// incidentEnds is how long the verdict must be good before another incident: a verdict that
	// flaps is one incident.
	incidentEnds = 5 * time.Minute
	// retryPeriod is the time between two attempts to write the file of one incident.
	retryPeriod = time.Minute
	// maxIncidents is how many files are kept; a new one replaces the oldest.
	maxIncidents = 8
	// incidentQueue is how many answers may wait. It bounds memory: a list of 1000 pods takes a MB.
	incidentQueue = 1024
)

// Incidents writes the last minutes of a runtime's answers, redacted, to a file when the verdict on
// the pipeline becomes a problem. Its [Tap] goes into the client. Answers are left out if they come
// faster than they can be encoded.
type Incidents struct {
	*Tap
	dir     string
	options Options
	encoder *encoder
	window  *window
}

// NewIncidents writes files to a folder. It creates the folder, but not its parents, and returns
// an error if no file can be created in it.
func NewIncidents(dir, program string) (*Incidents, error) {
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	return &Incidents{newTap(incidentQueue), dir, Options{Program: program, Redact: true}, newEncoder(true), newWindow()}, nil
}

func checkDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	file, err := os.CreateTemp(dir, ".incident-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// Run looks at the verdict on the status of the pipeline until ctx ends, and returns the cause. It
// writes a file for each cause that becomes a problem, unless that cause was already a problem in the
// last minutes. A file from a program that starts during an incident contains no earlier answers.
func (i *Incidents) Run(ctx context.Context, status func() pleg.Status, log *slog.Logger) error {
	defer i.Stop()
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	var due time.Time                         // the time at which to write a file; zero for none
	last := make(map[verdict.Cause]time.Time) // the time at which each cause was last a problem
	good := false                             // the verdict has been good once
	for {
		select {
		case c := <-i.queue:
			i.window.add(i.encoder.line(c))
			continue
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s := status()
		if l, changed := i.encoder.nodeLine(i.now(), s); changed {
			i.window.add(l)
		}
		v := verdict.Of(s)
		for _, f := range v.Findings {
			if f.Severity != verdict.Problem {
				continue
			}
			if good && time.Since(last[f.Cause]) >= incidentEnds {
				due = time.Now()
			}
			last[f.Cause] = time.Now()
		}
		switch {
		case v.Severity != verdict.Problem:
			due, good = time.Time{}, good || !s.Relist.Success.IsZero()
		case !due.IsZero() && !time.Now().Before(due):
			due = i.write(ctx, log.With("verdict", v.Lasting()))
		}
	}
}

// write writes a file and then removes the oldest files. If it cannot write the whole file, it
// removes none and returns when to try again: a disk may be full.
func (i *Incidents) write(ctx context.Context, log *slog.Logger) (retry time.Time) {
	path := filepath.Join(i.dir, time.Now().UTC().Format("incident-20060102T150405Z.jsonl.gz"))
	log = log.With("file", path)
	if err := i.writeFile(path); err != nil {
		log.ErrorContext(ctx, "cannot record the minutes before a problem", "err", err, "retryIn", retryPeriod)
		return time.Now().Add(retryPeriod)
	}
	log.WarnContext(ctx, "recorded the minutes before a problem")
	if err := i.removeOldest(); err != nil {
		log.ErrorContext(ctx, "cannot remove the oldest recordings", "err", err)
	}
	return time.Time{}
}

// writeFile leaves a whole file or none, also if the process is killed: the file gets its name once
// it is whole.
func (i *Incidents) writeFile(path string) error {
	part := filepath.Join(i.dir, ".incident.jsonl.gz")
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := Create(part)
	if err != nil {
		return err
	}
	err = i.save(file)
	if _, closeErr := file.Close(); err != nil || closeErr != nil {
		return errors.Join(cmp.Or(err, closeErr), os.Remove(part))
	}
	return os.Rename(part, path)
}

// save writes the last minutes as a whole recording that ends now. Calls in flight are in it
// without an answer.
func (i *Incidents) save(to io.Writer) error {
	i.mu.Lock()
	pending := i.unanswered()
	i.mu.Unlock()
	lines := i.window.all()
	for _, c := range pending {
		lines = append(lines, i.encoder.line(c))
	}
	w := newWriter(to)
	err := w.write(newHeader(i.began, i.options))
	for _, l := range append(lines, line{At: offset(i.now()), End: true}) {
		err = cmp.Or(err, w.write(l))
	}
	return err
}

// removeOldest removes the files above maxIncidents.
func (i *Incidents) removeOldest() error {
	files, _ := filepath.Glob(filepath.Join(i.dir, "incident-*.jsonl.gz")) // sorted by time
	var errs []error
	for _, file := range files[:max(0, len(files)-maxIncidents)] {
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}
