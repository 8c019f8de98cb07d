// Package daemon runs the program as a daemon, for tests and loads.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// startTimeout bounds the start of a daemon.
const startTimeout = 30 * time.Second

// Options configure a daemon.
type Options struct {
	Program string
	// Dir gets its socket and its log, which are named after it.
	Dir, Name string
	// Args follow "run --quiet --socket PATH", Env the environment of this process.
	Args, Env []string
	// Settings are set in the environment.
	Settings Settings
	// Unready means not to wait until it is healthy.
	Unready bool
}

// Settings are values by name, such as 5s by relist-threshold.
type Settings map[string]string

// With returns the settings with others that replace them.
func (s Settings) With(others Settings) Settings {
	all := maps.Clone(s)
	maps.Copy(all, others)
	return all
}

func (s Settings) environment() (env []string) {
	for name, value := range s {
		env = append(env, "PLEG_PIPELINE_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
	}
	return env
}

// Daemon is a process of the program that runs as a daemon.
type Daemon struct {
	*process.Process
	Name, Socket string
	// URL is the address of its HTTP server; empty if there is none.
	URL    string
	Client *client.Client
	http   *http.Client
}

// Start starts a daemon and returns once it is healthy and serves.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	d := &Daemon{Name: o.Name, Socket: filepath.Join(o.Dir, o.Name+".sock"), http: &http.Client{Timeout: startTimeout}}
	cmd := exec.Command(o.Program, append([]string{"run", "--quiet", "--socket", d.Socket}, o.Args...)...) //nolint:noctx // Stop ends it
	cmd.Env = slices.Concat(os.Environ(), o.Env, o.Settings.environment())
	var err error
	if d.Client, err = client.New(d.Socket, client.Options{}); err != nil {
		return nil, err
	}
	if d.Process, err = process.Start(cmd, filepath.Join(o.Dir, o.Name+".log")); err != nil {
		return nil, errors.Join(err, d.Client.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.Await(ctx, func(ctx context.Context) error { return d.ready(ctx, o.Unready) }); err != nil {
		return nil, errors.Join(fmt.Errorf("daemon %s: %w", o.Name, err), d.Stop())
	}
	return d, nil
}

var servedOn = regexp.MustCompile(`on (http://\S+)`)

var errUnhealthy = errors.New("not healthy")

func (d *Daemon) ready(ctx context.Context, unready bool) error {
	status, err := d.Client.Status(ctx)
	if err != nil {
		return err
	}
	if !status.Healthy && !unready {
		return errUnhealthy
	}
	text, err := os.ReadFile(d.Log)
	if found := servedOn.FindSubmatch(text); found != nil {
		d.URL = string(found[1])
	}
	return err
}

// Watch ranges over the events with a client of its own, which calls disconnected when its
// connection breaks.
func (d *Daemon) Watch(ctx context.Context, o pleg.SubscribeOptions, disconnected func()) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		c, err := client.New(d.Socket, client.Options{Disconnected: func(error, time.Duration) { disconnected() }})
		if err != nil {
			yield(pleg.Event{}, err)
			return
		}
		defer func() { _ = c.Close() }()
		c.Watch(ctx, o)(yield)
	}
}

// Cached returns the daemon's cache.
func (d *Daemon) Cached(ctx context.Context) ([]cache.Entry, error) {
	entries, _, err := d.Client.Pods(ctx)
	return entries, err
}

// Stop ends the daemon, which must exit with code 0 and without a data race.
func (d *Daemon) Stop() error {
	d.http.CloseIdleConnections()
	err := errors.Join(d.Client.Close(), d.Process.Stop())
	text, readErr := os.ReadFile(d.Log)
	if found := failed.Find(text); found != nil {
		err = errors.Join(err, fmt.Errorf("log of %s: %s", d.Name, text))
	}
	return errors.Join(err, readErr)
}

// failed is in the log of a daemon in which something went wrong.
var failed = regexp.MustCompile(`DATA RACE|panic:`)
