package cli

import (
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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// daemonSource is the daemon of this node. Another process can continue after the last
// event of this one.
type daemonSource struct{ client *client.Client }

func newClient(p Process, socket string) (*client.Client, error) {
	return client.New(socket, client.Options{Dial: func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, socket) }})
}

// answerTimeout is the time in which a daemon must answer.
const answerTimeout = 30 * time.Second

var errNoAnswer = errors.New("the daemon does not answer")

func answerWithin(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
}

// daemonError is an error whose text a daemon may have chosen.
type daemonError struct{ err error }

// Error implements error. The text has no character that could forge another line.
func (e daemonError) Error() string { return view.Printable(e.err.Error()) }

// Unwrap returns the error with its gRPC code.
func (e daemonError) Unwrap() error { return e.err }

// fromDaemon returns the error of a call of the daemon as it can be printed.
func fromDaemon(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return errNoAnswer
	case status.Code(err) == codes.Unimplemented:
		err = fmt.Errorf("not a daemon of this version: %w", err)
	}
	return daemonError{err}
}

func (s daemonSource) events(ctx context.Context, o client.WatchOptions) iter.Seq2[pleg.Event, error] {
	if disconnected := o.Disconnected; disconnected != nil {
		o.Disconnected = func(err error, retryIn time.Duration) { disconnected(fromDaemon(ctx, err), retryIn) }
	}
	return func(yield func(pleg.Event, error) bool) {
		for ev, err := range s.client.Watch(ctx, o) {
			if !yield(ev, fromDaemon(ctx, err)) {
				return
			}
		}
	}
}

func (s daemonSource) pods(ctx context.Context) ([]view.Pod, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	known, err := s.client.Pods(ctx)
	if err != nil {
		return nil, fromDaemon(ctx, err)
	}
	entries := make([]cache.Entry, 0, len(known))
	for _, p := range known {
		entries = append(entries, cache.Entry(p))
	}
	now, err := s.status(ctx)
	return view.Pods(entries, now), err
}

func (s daemonSource) pod(ctx context.Context, uid pleg.PodUID) (view.Pod, bool, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	known, err := s.client.Pods(ctx, uid)
	if err != nil || len(known) == 0 {
		return view.Pod{}, false, fromDaemon(ctx, err)
	}
	now, err := s.status(ctx)
	return view.OnePod(cache.Entry(known[0]), now), true, err
}

// status returns an empty status if the daemon is an older version that has none.
func (s daemonSource) status(ctx context.Context) (pleg.Status, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	now, err := s.client.Status(ctx)
	if status.Code(err) == codes.Unimplemented {
		return pleg.Status{}, nil
	}
	return now, fromDaemon(ctx, err)
}

const (
	// defaultSocket is the default socket of the daemon of this node.
	defaultSocket = "/run/pleg-pipeline/pleg.sock"
	// socketVariable can name another socket.
	socketVariable = "PLEG_PIPELINE_SOCKET"
	// dialTimeout is generous: a unix socket accepts at once unless its backlog
	// is full.
	dialTimeout = 2 * time.Second
)

// howConnected is part of the help of every command that can ask a daemon.
const howConnected = `The command asks the daemon ("pleg-pipeline run --socket") at the socket named by
--connect, otherwise by the environment variable PLEG_PIPELINE_SOCKET, otherwise
at ` + defaultSocket + ` if that exists. Without a daemon, or with
--runtime-endpoint, --config or --simulate, it runs its own pipeline on the
container runtime, which it finds as "pleg-pipeline run" does.`

// findDaemon returns the socket of the daemon to ask, or "" if there is none.
func (f *sourceFlags) findDaemon(ctx context.Context, p Process, out console) (string, error) {
	if f.own {
		return "", nil
	}
	socket, named := f.connect, true
	if socket == "" {
		socket = p.Getenv(socketVariable)
	}
	socket = strings.TrimPrefix(socket, "unix://") // as the endpoint of a runtime may have
	if socket == "" {
		socket, named = defaultSocket, false
	}
	err := dial(ctx, p, socket)
	switch {
	case err == nil:
		return socket, nil
	case !named && errors.Is(err, fs.ErrNotExist):
		out.say(ctx, "there is no daemon at %s: running a pipeline in this process", socket)
		return "", nil
	case !named && errors.Is(err, syscall.ECONNREFUSED):
		out.say(ctx, "no daemon answers at %s: running a pipeline in this process", socket)
		return "", nil
	case errors.Is(err, fs.ErrPermission):
		err = errors.New("permission denied: only root and the owner and group of the socket may connect")
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("the socket does not exist: to start a daemon, run %s run --socket %s", Name, socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = errors.New("no daemon answers: it has ended")
	}
	return "", fmt.Errorf("connect to the daemon at %s: %w", socket, err)
}

// dial tests whether a daemon accepts connections. The client alone would retry
// without end, which is right for a daemon that restarts but wrong for a path that
// is misspelled.
func dial(ctx context.Context, p Process, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := p.dial(ctx, socket)
	if err != nil {
		if number, ok := errors.AsType[syscall.Errno](err); ok {
			return number
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("the daemon does not answer")
		}
		return err
	}
	return conn.Close()
}
