package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// source is one node, or a cluster.
type source interface {
	top.Source
	statusSource
}

type sourceFlags struct {
	runtime runtimeFlags
	connect string
	own     bool // the daemon is private; set by validate, or by use if there is no other
	// needsDaemon means that a private daemon cannot do the work.
	needsDaemon bool
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.connect, "connect", "", "ask the daemon on this `SOCKET`")
	f.runtime.add(cmd)
}

func (f *sourceFlags) validate(flags *pflag.FlagSet) error {
	given := f.runtime.given(flags)
	f.own = given != ""
	if f.own && f.connect != "" {
		return fmt.Errorf("--connect cannot be combined with %s: a daemon has its own runtime", given)
	}
	if err := notEmpty(flags, "connect"); err != nil {
		return err
	}
	return f.runtime.validate(flags)
}

// use calls fn with the daemon of this node, or with a private daemon.
func (f *sourceFlags) use(ctx context.Context, p Process, out console, fn func(context.Context, source) error) error {
	socket, err := f.findDaemon(ctx, p, out)
	if err != nil {
		return err
	}
	if socket != "" {
		return useDaemon(ctx, p, socket, fn)
	}
	f.own = true
	return f.runtime.use(ctx, p, out, func(ctx context.Context, from endpoint.Endpoint) error {
		return usePrivate(ctx, out, from, fn)
	})
}

func useDaemon(ctx context.Context, p Process, socket string, fn func(context.Context, source) error) error {
	c, err := newClient(p.Dial, socket, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return fn(ctx, daemonSource{client: c, process: p, socket: socket})
}

const (
	defaultSocket  = "/run/pleg-pipeline/pleg.sock"
	socketVariable = "PLEG_PIPELINE_SOCKET"
	// dialTimeout is generous: a unix socket accepts at once unless its backlog
	// is full.
	dialTimeout = 2 * time.Second
)

// howConnected is part of the help of every command that can ask a daemon.
const howConnected = `The command asks the daemon ("pleg-pipeline run --socket") at the socket named by
--connect, otherwise by the environment variable PLEG_PIPELINE_SOCKET, otherwise
at ` + defaultSocket + ` if that exists. Without a daemon, or with
--runtime-endpoint or --config, it runs its own pipeline on the container
runtime, which it finds as "pleg-pipeline run" does.`

// findDaemon returns the socket of the daemon to ask, or "" if there is none.
func (f *sourceFlags) findDaemon(ctx context.Context, p Process, out console) (string, error) {
	if f.own {
		return "", nil
	}
	socket, named := f.daemonSocket(p)
	err := dial(ctx, p, socket)
	switch {
	case err == nil:
		// A process in state D may continue by itself, a stopped process does not.
		if d := silentDaemon(ctx, p, socket, ""); d.Frozen() {
			return "", d.Err()
		}
		return socket, nil
	case !named && errors.Is(err, fs.ErrNotExist):
		return "", f.withoutDaemon(ctx, out, "there is no daemon at "+socket)
	case !named && errors.Is(err, syscall.ECONNREFUSED):
		return "", f.withoutDaemon(ctx, out, "no daemon answers at "+socket)
	}
	return "", fmt.Errorf("connect to the daemon at %s: %w", socket, explainDial(err, socket))
}

// daemonSocket returns the socket of the daemon, and whether the user named it.
func (f *sourceFlags) daemonSocket(p Process) (socket string, named bool) {
	socket = cmp.Or(f.connect, p.Getenv(socketVariable))
	socket = strings.TrimPrefix(socket, "unix://") // as before the endpoint of a runtime
	return cmp.Or(socket, defaultSocket), socket != ""
}

// explainDial explains the error of a daemon's socket to people.
func explainDial(err error, socket string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return errNoPermission
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the socket does not exist: to start a daemon, run %s run --socket %s", Name, socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("it has ended")
	}
	return err
}

var errNoPermission = errors.New("permission denied: only root (sudo) and the owner and group of the socket may connect")

// withoutDaemon returns an error if the command needs a daemon.
func (f *sourceFlags) withoutDaemon(ctx context.Context, out console, why string) error {
	if f.needsDaemon {
		return fmt.Errorf("%s: to start one, run %s run --socket %s; --connect names the socket of another", why, Name, defaultSocket)
	}
	out.say(ctx, "%s: running a pipeline in this process", why)
	return nil
}

// dial tests whether a daemon accepts connections. The client alone would retry
// without end, which is right for a daemon that restarts but wrong for a path that
// is misspelled.
func dial(ctx context.Context, p Process, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := p.Dial(ctx, socket)
	if err != nil {
		if number, ok := errors.AsType[syscall.Errno](err); ok {
			return number
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errNoAnswer
		}
		return err
	}
	return conn.Close()
}

type dialer = func(ctx context.Context, socket string) (net.Conn, error)

func newClient(dial dialer, socket string, disconnected top.Disconnected) (*client.Client, error) {
	return client.New(socket, client.Options{
		Dial:         func(ctx context.Context) (net.Conn, error) { return dial(ctx, socket) },
		Disconnected: disconnected,
	})
}

type daemonSource struct {
	client  *client.Client
	process Process
	socket  string
}

const answerTimeout = 30 * time.Second

var errNoAnswer = errors.New("the daemon does not answer")

// daemonError is an error whose text a daemon may have chosen.
type daemonError struct{ err error }

// Error returns the message without the gRPC code, also that of an error inside. It contains no
// character that could forge another line.
func (e daemonError) Error() string { return view.Printable(verdict.Plain(e.err)) }

// Unwrap returns the error with its gRPC code.
func (e daemonError) Unwrap() error { return e.err }

// fromDaemon returns the error of a call of the daemon in a form that is safe to print.
func fromDaemon(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && err != nil && !time.Now().Before(deadline) {
		<-ctx.Done() // the server has the same deadline, and may end the call first
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return errNoAnswer
	case status.Code(err) == codes.Unimplemented:
		err = status.Errorf(codes.Unimplemented, "not a daemon of this version: %v", daemonError{err})
	}
	return daemonError{err}
}

// Events implements [top.Source]. Each uses a client of its own, which reports its connections.
func (s daemonSource) Events(ctx context.Context, o pleg.SubscribeOptions, disconnected top.Disconnected) iter.Seq2[fleet.Event, error] {
	return func(yield func(fleet.Event, error) bool) {
		c, err := newClient(s.process.Dial, s.socket, func(err error, retryIn time.Duration) {
			if disconnected != nil {
				disconnected(fromDaemon(ctx, err), retryIn)
			}
		})
		if err != nil {
			yield(fleet.Event{}, err)
			return
		}
		defer func() { _ = c.Close() }()
		for ev, err := range c.Watch(ctx, o) {
			if !yield(fleet.Event{Event: ev}, fromDaemon(ctx, err)) {
				return
			}
		}
	}
}

// State implements [top.Source].
func (s daemonSource) State(ctx context.Context) (state top.State, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	entries, _, unknown := s.client.Pods(ctx)
	if unknown != nil && !errors.Is(unknown, pleg.ErrNotSynced) {
		return state, s.failed(ctx, unknown)
	}
	if state.Status, err = s.Status(ctx); err == nil && unknown == nil {
		state.Pods = view.Pods(entries, state.Status)
	}
	return state, cmp.Or(err, fromDaemon(ctx, unknown))
}

// Status implements [statusSource].
func (s daemonSource) Status(ctx context.Context) (pleg.Status, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	now, err := s.client.Status(ctx)
	return now, s.failed(ctx, err)
}

// failed returns the error of a call. If the call took too long or the connection was silent, the error says
// that the daemon is stopped. If there was no connection, it says that the daemon has ended.
func (s daemonSource) failed(ctx context.Context, err error) error {
	unavailable := status.Code(err) == codes.Unavailable
	if unavailable {
		if why := dial(ctx, s.process, s.socket); why != nil {
			d := doctor.Daemon{Socket: s.socket, Silent: explainDial(why, s.socket).Error()}
			return d.Err()
		}
	}
	if unavailable || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		if d := silentDaemon(context.WithoutCancel(ctx), s.process, s.socket, ""); d.Silent != "" {
			return d.Err()
		}
	}
	return fromDaemon(ctx, err)
}
