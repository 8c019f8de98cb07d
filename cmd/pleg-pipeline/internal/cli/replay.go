package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
)

// replayEnded is the cause that ends a command when a recording has been played.
type replayEnded struct{}

func (replayEnded) Error() string { return "the recording has ended" }

// Is makes it a regular end, as a signal is.
func (replayEnded) Is(target error) bool { return target == context.Canceled }

// sayReplayed prints why the command ends, if the recording has ended.
func sayReplayed(ctx context.Context, out console) {
	if cause := context.Cause(ctx); errors.As(cause, new(replayEnded)) {
		out.say(ctx, "%v", cause)
	}
}

func (f *runtimeFlags) validateReplay(flags *pflag.FlagSet) error {
	file, replays := endpoint.Endpoint{Address: f.endpoint}.Recording()
	switch {
	case replays && file == "":
		return errors.New("--runtime-endpoint replay: needs the name of a recording: replay:FILE")
	case flags.Changed("replay-speed") && !replays:
		return errors.New("--replay-speed needs --runtime-endpoint replay:FILE")
	case !(f.replaySpeed > 0) || math.IsInf(f.replaySpeed, 0):
		return fmt.Errorf("--replay-speed must be greater than 0, got %v", f.replaySpeed)
	}
	return nil
}

// replay calls with for a runtime that answers from a recording. The end of the
// recording ends with.
func (f *runtimeFlags) replay(
	ctx context.Context, out console, file string, with func(context.Context, endpoint.Endpoint) error,
) error {
	r, err := recording.Open(file)
	if err != nil {
		return err
	}
	out.say(ctx, "replaying %s: %s", file, describe(r))
	if r.Cut != "" {
		out.say(ctx, "%s: %s", file, r.Cut)
	}
	server := recording.NewServer(r, f.replaySpeed)
	ended := func(ctx context.Context, _ net.Listener) error {
		select {
		case <-server.Ended():
			return replayEnded{}
		case <-ctx.Done():
			return nil
		}
	}
	err = servePrivately(ctx, func(ctx context.Context, address string) error {
		return with(ctx, endpoint.Endpoint{Address: address, Source: endpoint.ReplayScheme + file})
	}, server.Serve, ended)
	if n := server.Missing(); n > 0 {
		out.say(ctx, "the recording has no status of %d sandboxes and containers, as it ended before; these calls hang", n)
	}
	return err
}

func describe(r *recording.Recording) string {
	h := r.Header
	var b strings.Builder
	fmt.Fprintf(&b, "%v of %s %s, recorded %s", r.Length.Round(time.Millisecond), h.RuntimeName, h.RuntimeVersion, h.Began.Format(time.RFC3339))
	if h.Program != "" {
		fmt.Fprintf(&b, " by %s %s", Name, h.Program)
	}
	if h.Redacted {
		b.WriteString(", redacted")
	}
	return b.String()
}
