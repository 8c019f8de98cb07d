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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// source is where events and pods come from: a daemon, or a pipeline in this
// process.
type source interface {
	// events ranges over what the options ask for, until ctx ends or an error
	// ends the range.
	events(ctx context.Context, o client.WatchOptions) iter.Seq2[pipeline.Event, error]
	// pods returns the views of all pods. pod returns that of one pod; false if it is
	// gone or unknown.
	pods(ctx context.Context) ([]podview.Pod, error)
	pod(ctx context.Context, uid pipeline.PodUID) (podview.Pod, bool, error)
	// status returns what the pipeline does at present.
	status(ctx context.Context) (pipeline.Status, error)
}

// sourceFlags say where events and pods come from.
type sourceFlags struct {
	runtime runtimeFlags
	connect string
	own     bool // set by validate
	// needsDaemon means that a pipeline in this process cannot do the work.
	needsDaemon bool
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.connect, "connect", "", "ask the daemon on this `SOCKET`")
	f.runtime.add(cmd)
}

func (f *sourceFlags) validate(flags *pflag.FlagSet) error {
	given := f.runtime.given(flags)
	f.own = given != ""
	switch {
	case flags.Changed("connect") && f.connect == "":
		return errors.New("--connect must not be empty: want the path of a socket")
	case f.own && f.connect != "":
		return fmt.Errorf("--connect cannot be combined with %s: a daemon has its own runtime", given)
	}
	return f.runtime.validate(flags)
}

// viewCommand is what the commands events and pods have in common.
type viewCommand struct {
	process Process
	source  sourceFlags
	fleet   fleetFlags
	filter  podFilter
	output  outputFlags
	log     logFlags
}

func (c *viewCommand) validate(flags *pflag.FlagSet) error {
	if err := c.source.validate(flags); err != nil {
		return err
	}
	if err := c.fleet.validate(flags, &c.source); err != nil {
		return err
	}
	return c.filter.validate()
}

// use calls with for the daemon, or for a pipeline in this process.
func (f *sourceFlags) use(ctx context.Context, p Process, out console, with func(context.Context, source) error) error {
	socket, err := f.findDaemon(ctx, p, out)
	if err != nil {
		return err
	}
	if socket != "" {
		c, err := newClient(p, socket)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return with(ctx, daemonSource{c})
	}
	if f.needsDaemon {
		return errNeedsDaemon
	}
	return f.runtime.use(ctx, p, out, func(ctx context.Context, from endpoint.Endpoint) error {
		return useOwn(ctx, out, from, with)
	})
}

// settleTimeout is how long a pipeline in this process may take to inspect all pods.
// The commands do not wait longer for pods whose inspection hangs.
const settleTimeout = 5 * time.Second

func useOwn(ctx context.Context, out console, from endpoint.Endpoint, with func(context.Context, source) error) error {
	runtime, err := connect(ctx, out, from, cri.Options{Logger: out.log})
	if err != nil {
		return interrupted(ctx, out, err)
	}
	defer func() { _ = runtime.Close() }()
	pipe, err := pipeline.New(pipeline.Options{
		Runtime: runtime, DeliverAfterFailures: defaultDeliverAfter, Logger: out.log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = pipe.Run(running) // only the end of running ends it
	}()
	defer func() { stop(); <-ended }()
	if err := settle(ctx, pipe); err != nil {
		return err
	}
	return with(ctx, ownSource{pipe})
}

// settle waits until all pods of the first list have been inspected.
func settle(ctx context.Context, pipe *pipeline.Pipeline) error {
	sub, err := pipe.Subscribe(pipeline.SubscribeOptions{Name: "settle", Bookmarks: true, Types: []pipeline.EventType{pipeline.PodSync}})
	if err != nil {
		return err
	}
	defer sub.Close()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	ctx, stop := untilOnlyHung(ctx, ownSource{pipe})
	defer stop()
	for ev := range sub.All(ctx) {
		if ev.Type == pipeline.Bookmark {
			return nil
		}
	}
	if healthy, err := pipe.Healthy(); !healthy && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return nil
}

// errOnlyHung ends the wait for the state of pods that hang.
var errOnlyHung = errors.New("the inspections of the other pods hang")

// hungPeriod is the time between two looks for such pods. In the first one, the events of
// the others arrive.
const hungPeriod = 500 * time.Millisecond

// untilOnlyHung returns a context that ends with [errOnlyHung] once each pod that is not
// known yet hangs: who asks for the pods wants to see that, not to wait for it too. stop
// releases the context.
func untilOnlyHung(ctx context.Context, from source) (until context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(hungPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if now, err := from.status(ctx); err == nil && onlyHung(now) {
				cancel(errOnlyHung)
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// onlyHung reports whether pods wait for their inspection and all of them hang.
func onlyHung(s pipeline.Status) bool {
	hung := make(map[pipeline.PodUID]bool)
	for _, i := range s.Overdue {
		if i.Hung {
			hung[i.UID] = true
		}
	}
	for _, q := range s.Quarantined {
		hung[q.UID] = true
	}
	return s.Waiting > 0 && s.Waiting <= len(hung)
}

// ownSource is a pipeline in this process.
type ownSource struct{ pipe *pipeline.Pipeline }

func (s ownSource) events(ctx context.Context, o client.WatchOptions) iter.Seq2[pipeline.Event, error] {
	return func(yield func(pipeline.Event, error) bool) {
		var after pipeline.Position
		if o.After != nil {
			after = *o.After
		}
		sub, err := s.pipe.Subscribe(pipeline.SubscribeOptions{
			Name: o.Name, After: after, Replay: o.Replay, Bookmarks: o.Bookmarks,
			Types: o.Types, Namespaces: o.Namespaces, PodUIDs: o.PodUIDs, Selector: o.Selector,
			OmitSandboxes: o.OmitSandboxes, NetworkEvents: o.NetworkEvents,
		})
		if err != nil {
			yield(pipeline.Event{}, err)
			return
		}
		defer sub.Close()
		for ev := range sub.All(ctx) {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func (s ownSource) pods(context.Context) ([]podview.Pod, error) {
	return podview.List(s.pipe.Cache().List(), s.pipe.Status()), nil
}

func (s ownSource) pod(_ context.Context, uid pipeline.PodUID) (podview.Pod, bool, error) {
	e, ok := s.pipe.Cache().Entry(uid)
	return podview.One(e, s.pipe.Status()), ok, nil
}

func (s ownSource) status(context.Context) (pipeline.Status, error) { return s.pipe.Status(), nil }

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
func (e daemonError) Error() string { return printer.Printable(e.err.Error()) }

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

func (s daemonSource) events(ctx context.Context, o client.WatchOptions) iter.Seq2[pipeline.Event, error] {
	if disconnected := o.Disconnected; disconnected != nil {
		o.Disconnected = func(err error, retryIn time.Duration) { disconnected(fromDaemon(ctx, err), retryIn) }
	}
	return func(yield func(pipeline.Event, error) bool) {
		for ev, err := range s.client.Watch(ctx, o) {
			if !yield(ev, fromDaemon(ctx, err)) {
				return
			}
		}
	}
}

func (s daemonSource) pods(ctx context.Context) ([]podview.Pod, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	known, err := s.client.Pods(ctx)
	if err != nil {
		return nil, fromDaemon(ctx, err)
	}
	entries := make([]pipeline.CacheEntry, 0, len(known))
	for _, p := range known {
		entries = append(entries, pipeline.CacheEntry(p))
	}
	now, err := s.status(ctx)
	return podview.List(entries, now), err
}

func (s daemonSource) pod(ctx context.Context, uid pipeline.PodUID) (podview.Pod, bool, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	known, err := s.client.Pods(ctx, uid)
	if err != nil || len(known) == 0 {
		return podview.Pod{}, false, fromDaemon(ctx, err)
	}
	now, err := s.status(ctx)
	return podview.One(pipeline.CacheEntry(known[0]), now), true, err
}

// status returns an empty status if the daemon is an older version that has none.
func (s daemonSource) status(ctx context.Context) (pipeline.Status, error) {
	ctx, cancel := answerWithin(ctx)
	defer cancel()
	now, err := s.client.Status(ctx)
	if status.Code(err) == codes.Unimplemented {
		return pipeline.Status{}, nil
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
