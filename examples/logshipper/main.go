// Command logshipper shows a subscriber that must not miss a container, even one that
// ran for a very short time: it prints which log files it would read and when each is
// complete.
//
//	logshipper unix:///run/containerd/containerd.sock
package main

import (
	"context"
	"io"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/examples/internal/frame"
)

var example = frame.Example{
	Name: "logshipper",
	// Only CRI events show a container that starts, exits and is removed between two
	// relists. Relists find the changes that no CRI event announced.
	Pipeline:  pipeline.Options{Events: pipeline.EventsAuto},
	Subscribe: pipeline.SubscribeOptions{OmitSandboxes: true},
	Work: func(_ context.Context, p *pipeline.Pipeline, events <-chan pipeline.Event, out io.Writer) error {
		s := newShipper(out, p.Cache().Get)
		for ev := range events {
			s.handle(ev)
		}
		return nil
	},
}

func main() { example.Main() }
