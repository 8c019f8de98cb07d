package cli

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

const (
	// settleTimeout is how long a private daemon may take to inspect all pods. The commands do
	// not wait longer for pods whose inspection hangs.
	settleTimeout = 5 * time.Second
	// privateBuffer is the size of the buffer of each direction of a connection in memory, in
	// bytes.
	privateBuffer = 64 << 10
)

// usePrivate calls fn with a daemon in this process, which serves in memory until fn has
// returned.
func usePrivate(ctx context.Context, out console, from endpoint.Endpoint, fn func(context.Context, source) error) error {
	runtime, err := connect(ctx, out, from, cri.Options{Logger: out.log})
	if err != nil {
		return interrupted(ctx, out, err)
	}
	defer func() { _ = runtime.Close() }()
	pipe, err := pipeline.New(pipeline.Options{Runtime: withReport(runtime, from.Report), Logger: out.log})
	if err != nil {
		return err
	}
	daemon, err := server.New(pipe, server.Options{})
	if err != nil {
		return err
	}
	memory := bufconn.Listen(privateBuffer)
	here := Process{Dial: func(ctx context.Context, _ string) (net.Conn, error) { return memory.DialContext(ctx) }}
	ask := func(ctx context.Context) error {
		return useDaemon(ctx, here, "in memory", func(ctx context.Context, from source) error {
			if err := settle(ctx, out, from); err != nil {
				return err
			}
			return fn(ctx, from)
		})
	}
	return whileRunning(ctx, ask, pipe.Run, func(ctx context.Context) error { return daemon.Serve(ctx, memory) })
}

// reporting is a runtime with a report about its node.
type reporting struct {
	*cri.Client
	add func(*pleg.Report)
}

// Report implements [pleg.Reporter].
func (r reporting) Report() pleg.Report {
	report := r.Client.Report()
	r.add(&report)
	return report
}

// withReport returns a runtime that calls add for each of its reports. add may be nil.
func withReport(client *cri.Client, add func(*pleg.Report)) pleg.Runtime {
	if add == nil {
		return client
	}
	return reporting{client, add}
}

// settle waits until all pods of the first list have been inspected. A runtime that cannot list its
// pods is an error: a daemon waits for it, a command does not.
func settle(ctx context.Context, out console, from source) error {
	waiting, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	state := startWait(ctx, out, from, "")
	err := awaitState(waiting, from.(daemonSource))
	state.end()
	if errors.Is(err, context.DeadlineExceeded) {
		if now, err := from.Status(ctx); err == nil && !now.Healthy {
			return now.Err
		}
	}
	return nil
}
