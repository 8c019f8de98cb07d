// Package doctor answers why a node's PLEG is not healthy. It asks the container
// runtime what a relist asks, times each call, and compares what it sees with the
// known causes. Every call is bounded and so is the whole: a runtime that is sick
// gets a partial answer, not none.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// listLimit is what the kubelet and the runtimes accept.
	listLimit = 16 << 20
	// maxAnswer lets a list be measured that is over the limit, if only the
	// client limits it.
	maxAnswer = 256 << 20
)

// Options configure an examination. All fields but Source and Dial are required.
type Options struct {
	// Endpoint is the address of the runtime, Source where it is from.
	Endpoint, Source string
	// Timeout bounds the examination, CallTimeout each call: one that takes
	// longer hangs.
	Timeout, CallTimeout time.Duration
	// Period is the time from one relist to the next, Threshold the age of the
	// last at which PLEG is not healthy.
	Period, Threshold time.Duration
	// Pressure has the files of the kernel's /proc/pressure.
	Pressure fs.FS
	// Usage returns the percentages in use of a filesystem's bytes and inodes.
	Usage func(path string) (used, inodes float64, err error)
	// Dial connects to the socket at a path; nil means that of this machine.
	Dial func(ctx context.Context, path string) (net.Conn, error)
}

// examination is one run.
type examination struct {
	Options
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	calls   timings
	report  *Report
}

// Examine returns what it found until everything was asked, Options.Timeout is
// over or ctx ends. It never fails: that the runtime does is a finding.
func Examine(ctx context.Context, o Options) *Report {
	if o.Dial == nil {
		o.Dial = dialUnix
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	e := &examination{Options: o, report: &Report{
		At: began, Endpoint: o.Endpoint, Source: o.Source, Findings: []Finding{},
		Relist: Relist{PeriodSeconds: o.Period.Seconds(), ThresholdSeconds: o.Threshold.Seconds()},
	}}
	e.readPressure()
	if err := e.connect(ctx); err != nil {
		e.report.Findings = append(e.report.Findings, *err)
	} else {
		e.judge()
	}
	e.report.Calls = e.calls.summary()
	e.report.TookSeconds = time.Since(began).Seconds()
	return e.report
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// connect examines a runtime that answers, and returns why it cannot.
func (e *examination) connect(ctx context.Context) *Finding {
	socket := strings.TrimPrefix(e.Endpoint, "unix://")
	if f := e.reach(ctx, socket); f != nil {
		return f
	}
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return e.Dial(ctx, socket)
		}))
	if err != nil {
		return &Finding{RuntimeStopped, Problem, err.Error(), "name a unix socket with --runtime-endpoint"}
	}
	defer func() { _ = conn.Close() }()
	e.runtime, e.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	if f := e.version(ctx); f != nil {
		return f
	}
	e.conditions(ctx)
	listed := e.list(ctx)
	e.inspect(ctx, listed)
	e.imageFilesystem(ctx)
	return nil
}

// reach looks at the socket itself.
func (e *examination) reach(ctx context.Context, socket string) *Finding {
	ctx, cancel := context.WithTimeout(ctx, e.CallTimeout)
	defer cancel()
	conn, err := e.Dial(ctx, socket)
	const start = "start the runtime (systemctl status containerd, or crio) and read its log (journalctl -u containerd)"
	switch {
	case err == nil:
		_ = conn.Close()
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &Finding{RuntimeStopped, Problem, "there is no socket at " + socket, start + "; if it runs, name its socket with --runtime-endpoint"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Finding{RuntimeStopped, Problem, "nobody listens on " + socket, start}
	case errors.Is(err, fs.ErrPermission):
		return &Finding{RuntimeStopped, Problem, "no permission to connect to " + socket, "run this as root"}
	default:
		return &Finding{RuntimeHangs, Problem, fmt.Sprintf("connect to %s: %v", socket, err), restart}
	}
}

const restart = "read the runtime's log; send it SIGUSR1 for its goroutines if it is containerd; restart it (containers go on running)"

func (e *examination) version(ctx context.Context) *Finding {
	var answer *runtimeapi.VersionResponse
	err := e.call(ctx, "Version", func(ctx context.Context) (err error) {
		answer, err = e.runtime.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
	switch status.Code(err) {
	case codes.OK:
		e.report.Runtime = answer.GetRuntimeName() + " " + answer.GetRuntimeVersion()
		return nil
	case codes.Unimplemented:
		return &Finding{RuntimeStopped, Problem, "it serves gRPC but not CRI v1: " + err.Error(), "enable the runtime's CRI plugin, or name another socket with --runtime-endpoint"}
	case codes.DeadlineExceeded, codes.Canceled:
		return &Finding{RuntimeHangs, Problem, fmt.Sprintf("it accepts connections, but does not tell its version within %v", e.CallTimeout), restart}
	default:
		return &Finding{RuntimeHangs, Problem, "it does not tell its version: " + err.Error(), restart}
	}
}

func (e *examination) conditions(ctx context.Context) {
	_ = e.call(ctx, "Status", func(ctx context.Context) error {
		answer, err := e.runtime.Status(ctx, &runtimeapi.StatusRequest{})
		for _, c := range answer.GetStatus().GetConditions() {
			e.report.Conditions = append(e.report.Conditions, Condition{
				Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(),
			})
		}
		return err
	})
}
