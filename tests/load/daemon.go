package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

// startTimeout bounds the start of a daemon.
const startTimeout = 30 * time.Second

// DaemonOptions say how to run a daemon.
type DaemonOptions struct {
	Program string
	// Dir gets its socket and its log, which are named after it.
	Dir, Name string
	// Args follow "run --quiet --socket PATH", Env the environment of this process.
	Args, Env []string
}

// Daemon is a process of the program that runs as a daemon.
type Daemon struct {
	*process.Process
	Name, Socket string
	// URL is where it serves HTTP; empty if it does not.
	URL    string
	Client *client.Client
	http   *http.Client
}

// StartDaemon starts a daemon and returns once it is healthy.
func StartDaemon(ctx context.Context, o DaemonOptions) (*Daemon, error) {
	d := &Daemon{Name: o.Name, Socket: filepath.Join(o.Dir, o.Name+".sock"), http: &http.Client{Timeout: startTimeout}}
	cmd := exec.Command(o.Program, append([]string{"run", "--quiet", "--socket", d.Socket}, o.Args...)...) //nolint:noctx // Stop ends it
	cmd.Env = append(os.Environ(), o.Env...)
	var err error
	if d.Client, err = client.New(d.Socket, client.Options{}); err != nil {
		return nil, err
	}
	if d.Process, err = process.Start(cmd, filepath.Join(o.Dir, o.Name+".log")); err != nil {
		return nil, errors.Join(err, d.Client.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.Await(ctx, d.ready); err != nil {
		return nil, errors.Join(fmt.Errorf("daemon %s: %w", o.Name, err), d.Stop())
	}
	return d, nil
}

var servedOn = regexp.MustCompile(`on (http://\S+)`)

var errUnhealthy = errors.New("not healthy")

func (d *Daemon) ready(ctx context.Context) error {
	status, err := d.Client.Status(ctx)
	if err != nil {
		return err
	}
	if !status.Healthy {
		return errUnhealthy
	}
	text, err := os.ReadFile(d.Log)
	if found := servedOn.FindSubmatch(text); found != nil {
		d.URL = string(found[1])
	}
	return err
}

// Stop ends the daemon, which must exit with code 0.
func (d *Daemon) Stop() error {
	d.http.CloseIdleConnections()
	return errors.Join(d.Client.Close(), d.Process.Stop())
}
