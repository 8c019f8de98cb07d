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
	// defaultSocket is where a daemon of this node is looked for.
	defaultSocket = "/run/pleg-pipeline/pleg.sock"
	// socketVariable names another place.
	socketVariable = "PLEG_PIPELINE_SOCKET"
	// dialTimeout is generous: a unix socket accepts at once unless its backlog
	// is full.
	dialTimeout = 2 * time.Second
)

// howConnected is part of the help of every command that may ask a daemon.
const howConnected = `It asks the daemon ("pleg-pipeline run --socket") at the socket named by
--connect, otherwise by the environment variable PLEG_PIPELINE_SOCKET, otherwise
at ` + defaultSocket + ` if there is one. Without a daemon, or with
--runtime-endpoint, --config or --simulate, it runs a pipeline of its own on the
container runtime, which is found as "pleg-pipeline run" finds it.`

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
		out.say(ctx, "nobody answers at %s: running a pipeline of its own", socket)
		return "", nil
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("connect to the daemon at %s: permission denied: its owner and group may, root too", socket)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("connect to the daemon at %s: the socket does not exist: start one with %s run --socket %[1]s", socket, Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "", fmt.Errorf("connect to the daemon at %s: nobody answers: it has ended", socket)
	default:
		return "", fmt.Errorf("connect to the daemon at %s: %w", socket, err)
	}
}

// dial connects and hangs up: the client would go on trying for ever, which is
// right for a daemon that was there and wrong for a path that is misspelt.
func dial(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		if number, ok := errors.AsType[syscall.Errno](err); ok {
			return number
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.New("it does not answer")
		}
		return err
	}
	return conn.Close()
}
