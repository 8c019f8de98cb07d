package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
)

// daemonTimeout is the time in which the daemon must answer. The daemon answers without a call to
// the runtime.
const daemonTimeout = 2 * time.Second

// askDaemon returns the status of this node's daemon, or says that the daemon does not answer. If
// it asks no daemon, it returns the reason.
func (c *doctorCommand) askDaemon(ctx context.Context) (d *doctor.Daemon, none string) {
	if c.source.own {
		return nil, "the command line names a runtime"
	}
	socket, named := c.source.daemonSocket(c.process)
	err := dial(ctx, c.process, socket)
	switch {
	case !named && errors.Is(err, fs.ErrNotExist):
		return nil, "there is none at " + socket
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Sprintf("%s: %v", socket, errNoPermission)
	case err != nil:
		return &doctor.Daemon{Socket: socket, Silent: explainDial(err, socket).Error()}, ""
	}
	asked, cancel := context.WithTimeoutCause(ctx, daemonTimeout, errNoAnswer)
	defer cancel()
	daemon, err := newClient(c.process.Dial, socket, nil)
	if err != nil {
		return nil, err.Error()
	}
	defer func() { _ = daemon.Close() }()
	status, err := daemon.Status(asked)
	if asked.Err() != nil && ctx.Err() == nil {
		return silentDaemon(ctx, c.process, socket, fmt.Sprintf("it accepts connections, but sent nothing within %v", daemonTimeout)), ""
	}
	if err != nil {
		return &doctor.Daemon{Socket: socket, Silent: fromDaemon(asked, err).Error()}, ""
	}
	return doctor.NewDaemon(socket, status), ""
}

// silentDaemon returns a daemon that accepts connections and does not answer. The result contains
// the state of its process, or why that is unknown.
func silentDaemon(ctx context.Context, p Process, socket, why string) *doctor.Daemon {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := p.Dial(ctx, socket)
	if err != nil {
		return doctor.SilentDaemon(socket, why, nil)
	}
	defer func() { _ = conn.Close() }()
	pid := unixsocket.Server(conn)
	if pid == 0 { // in memory
		return doctor.SilentDaemon(socket, why, nil)
	}
	of, _ := process.Read(p.Proc, pid)
	return doctor.SilentDaemon(socket, why, of)
}
