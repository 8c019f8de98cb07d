// Package benchtest has the other end of what the tests of the benchmark's programs
// measure: a simulated node, and the sender of commands.
package benchtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/node"
	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// NewNode returns a node that serves until the end of the test, and a client of it.
func NewNode(t *testing.T) (*node.Node, *cri.Client) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	n, err := node.Start(context.Background(), socket, false)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cri.New(socket, cri.Options{UnaryLists: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), n.Stop()); err != nil {
			t.Error(err)
		}
	})
	return n, client
}

// Start starts the candidate and returns its report when it has the wanted events.
func Start(ask func(control.Command) control.Report, want map[string]int, timeout time.Duration) control.Report {
	ask(control.Command{Do: control.ClientExpect, Want: want})
	ask(control.Command{Do: control.ClientStart})
	return ask(control.Command{Do: control.ClientWait, TimeoutMS: int(timeout.Milliseconds())})
}

// Serve runs a candidate. ask sends it a command; end stops it, and its error fails
// the test unless it is want.
func Serve(t *testing.T, candidate probe.Candidate) (ask func(control.Command) control.Report, end func(want error)) {
	t.Helper()
	commandsIn, commandsOut := io.Pipe()
	reportsIn, reportsOut := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := probe.Serve(t.Context(), candidate, commandsIn, reportsOut)
		served <- errors.Join(err, reportsOut.Close())
	}()
	commands, reports := json.NewEncoder(commandsOut), json.NewDecoder(reportsIn)
	ask = func(c control.Command) control.Report {
		t.Helper()
		var r control.Report
		if err := errors.Join(commands.Encode(c), reports.Decode(&r)); err != nil {
			t.Fatal(err)
		}
		return r
	}
	return ask, func(want error) {
		t.Helper()
		if err := errors.Join(commandsOut.Close(), <-served); !errors.Is(err, want) {
			t.Errorf("Serve = %v, want %v", err, want)
		}
	}
}
