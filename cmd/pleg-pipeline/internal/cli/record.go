package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
)

const recordLong = `Record the runtime's answers to a pipeline in FILE until SIGINT or SIGTERM: lists,
statuses, errors, calls that hang, and how long each call took.
FILE must not exist; only its owner can read it. It has lines of JSON, and is
compressed if its name ends in .gz.

Run the pipeline on the recording, on any machine:
  pleg-pipeline run -r replay:FILE
The commands events and pods accept a recording too. They end with the recording.

A recording contains names, labels, annotations, addresses and messages of all
pods of the node. --redact replaces each text by a word. It keeps numbers, such as
times and exit codes, random ids, well-known keys of labels and annotations, reasons
of one word, and the name and version of the runtime.

` + howFound + howReplayed

const recordExample = `  # record a minute of this node to send it to somebody
  sudo pleg-pipeline record --redact --duration 1m node.jsonl.gz

  # they replay it
  pleg-pipeline run -r replay:node.jsonl.gz`

type recordCommand struct {
	process  Process
	runtime  runtimeFlags
	pipeline pipelineFlags
	log      logFlags

	file     string
	duration time.Duration
	redact   bool
	began    bool // the runtime has answered a call
}

func newRecord(p Process) *cobra.Command {
	c := &recordCommand{process: p}
	return newCommand(c, &cobra.Command{
		Use:     "record FILE",
		Short:   "Record the answers of the runtime for a replay",
		Long:    recordLong,
		Example: recordExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return errors.New("want the name of the FILE to write")
			}
			c.file = args[0]
			return noArgs(cmd, args[1:])
		},
	})
}

func (c *recordCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&c.duration, "duration", 0, "`TIME` after which the recording ends; 0 for never")
	flags.BoolVar(&c.redact, "redact", false, "replace names, values of labels and annotations, addresses and messages")
	c.runtime.add(cmd)
	c.pipeline.addCalls(cmd)
	c.log.add(cmd, "warn", "debug", "info", "error")
}

func (c *recordCommand) validate(flags *pflag.FlagSet) error {
	if c.duration < 0 {
		return fmt.Errorf("--duration must not be negative, got %v", c.duration)
	}
	c.pipeline.RelistThreshold = max(pipeline.DefaultRelistThreshold, 2*c.pipeline.RelistPeriod)
	if err := c.runtime.validate(flags); err != nil {
		return err
	}
	return c.pipeline.validate()
}

var errTimeIsUp = errors.New("the time is up")

func (c *recordCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.runtime.use(ctx, c.process, out, func(ctx context.Context, from endpoint.Endpoint) error {
		file, err := recording.Create(c.file)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("record to %s: it exists; name a new file", c.file)
		}
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		return c.recordTo(ctx, out, from, file)
	})
}

func (c *recordCommand) recordTo(ctx context.Context, out console, from endpoint.Endpoint, file *recording.File) error {
	recorder := recording.NewRecorder(file, recording.Options{Program: programVersion(), Redact: c.redact})
	err := c.record(ctx, out, from, recorder)
	size, closeErr := file.Close()
	answers, length := recorder.Totals()
	if !c.began || size == 0 { // as on a full disk
		return errors.Join(cmp.Or(err, closeErr), os.Remove(c.file))
	}
	out.say(ctx, "%s has %d answers of %v, %d bytes", c.file, answers, length.Round(time.Millisecond), size)
	return cmp.Or(err, closeErr)
}

func (c *recordCommand) record(ctx context.Context, out console, from endpoint.Endpoint, recorder *recording.Recorder) error {
	if c.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.duration, errTimeIsUp)
		defer cancel()
	}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	// The recording ends first: it must not contain the calls that this cancels.
	defer context.AfterFunc(ctx, func() {
		recorder.Stop()
		stop(context.Cause(ctx))
	})()
	written := make(chan error, 1)
	go func() {
		err := recorder.Run()
		if err != nil {
			stop(err)
		}
		written <- err
	}()
	err := c.runPipeline(running, out, from, recorder)
	recorder.Stop()
	if err := <-written; err != nil {
		return err
	}
	if ctx.Err() != nil {
		out.say(ctx, "%v", context.Cause(ctx))
		return nil
	}
	return err
}

func (c *recordCommand) runPipeline(ctx context.Context, out console, from endpoint.Endpoint, recorder *recording.Recorder) error {
	options := c.pipeline.clientOptions(out.log, nil)
	options.DialOptions = recorder.DialOptions()
	client, err := connect(ctx, out, from, options)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	c.began = true
	pipe, err := pipeline.New(c.pipeline.options(client, out.log, nil))
	if err != nil {
		return err
	}
	out.say(ctx, "recording to %s", c.file)
	if !c.redact {
		out.say(ctx, "%s will contain names, labels, annotations and addresses of all pods; --redact replaces them", c.file)
	}
	return pipe.Run(ctx)
}
