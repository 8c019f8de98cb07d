package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

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
	if socket == "" {
		socket, named = defaultSocket, false
	}
	err := dial(ctx, socket)
	switch {
	case err == nil:
		return socket, nil
	case !named && errors.Is(err, fs.ErrNotExist):
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
func dial(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
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
