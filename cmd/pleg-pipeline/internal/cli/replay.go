package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// replayEnded is the cause that ends a command when a recording has been played.
type replayEnded struct{}

func (replayEnded) Error() string { return "the recording has ended" }

// Is makes it a regular end, as a signal is.
func (replayEnded) Is(target error) bool { return target == context.Canceled }

func sayReplayed(ctx context.Context, out console) {
	if cause := context.Cause(ctx); errors.As(cause, new(replayEnded)) {
		out.say(ctx, "%v", cause)
	}
}

func (f *runtimeFlags) validateReplay() error {
	if file, replays := (endpoint.Endpoint{Address: f.endpoint}).Recording(); replays && file == "" {
		return errors.New("--runtime-endpoint replay: needs the name of a recording: replay:FILE")
	}
	return nil
}

// replay serves a recording as a runtime and calls fn with it. When the recording
// ends, so does the context of that call, unless it is for a command that runs once.
func (f *runtimeFlags) replay(
	ctx context.Context, out console, file string, fn func(context.Context, endpoint.Endpoint) error,
) error {
	r, err := recording.Open(ctx, file)
	if err != nil {
		return err
	}
	out.say(ctx, "replaying %s: %v of %s %s, recorded %s", file, r.Length.Round(time.Millisecond),
		view.Printable(r.Runtime.GetRuntimeName()), view.Printable(r.Runtime.GetRuntimeVersion()), r.Header.Began.Format(time.RFC3339))
	if r.Cut != "" {
		out.say(ctx, "%s: %s", file, r.Cut)
	}
	server := recording.NewServer(r)
	ended := func(ctx context.Context, _ net.Listener) error {
		if f.once || server.WaitPlayed(ctx) != nil {
			return nil
		}
		return replayEnded{}
	}
	return servePrivately(ctx, func(ctx context.Context, address string) error {
		return fn(ctx, endpoint.Endpoint{Address: address, Source: endpoint.ReplayScheme + file, Report: server.Report})
	}, server.Serve, ended)
}

// servePrivately calls use with the endpoint of a private socket on which parts serve.
func servePrivately(
	ctx context.Context, use func(ctx context.Context, endpoint string) error, parts ...func(context.Context, net.Listener) error,
) (err error) {
	dir, err := os.MkdirTemp("", Name+"-")
	if err != nil {
		return fmt.Errorf("create a socket: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("create a socket: %w", err)
	}
	var running []func(context.Context) error
	for _, part := range parts {
		running = append(running, func(ctx context.Context) error { return part(ctx, listener) })
	}
	return whileRunning(ctx, func(ctx context.Context) error { return use(ctx, "unix://"+socket) }, running...)
}

// whileRunning calls use while parts run. They end only after use has returned, as a server
// outlives its clients. If a part fails, its error is the cause that ends the context of use.
func whileRunning(ctx context.Context, use func(context.Context) error, parts ...func(context.Context) error) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group errgroup.Group
	for _, part := range parts {
		group.Go(func() error {
			err := part(running)
			if err != nil {
				end(err)
			}
			return err
		})
	}
	err := use(ctx)
	stop()
	_ = group.Wait() // use got their errors
	return err
}
