package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each candidate reports the pods at its start, and then those of a burst.
func TestCandidatesReportTheSameEvents(t *testing.T) {
	const pods, containers = 6, 2
	c := config{inspectors: 4, period: 20 * time.Millisecond, timeout: time.Minute}
	for name, candidate := range map[string]func(*cri.Client) (probe.Candidate, probe.Width){"serial": c.serial, "pipeline": c.pipeline} {
		t.Run(name, func(t *testing.T) {
			runtime, client := serve(t)
			if _, err := runtime.Populate(simruntime.Population{Pods: pods, Containers: containers}); err != nil {
				t.Fatal(err)
			}
			measured, width := candidate(client)
			ask, end := talk(t, measured, width)
			want := map[string]int{"ContainerStarted": pods * (containers + 1)}
			ask(control.Command{Do: control.ClientExpect, Want: want})
			ask(control.Command{Do: control.ClientStart})
			if r := ask(control.Command{Do: control.ClientWait, TimeoutMS: 60_000}); !r.Done || r.Seen["ContainerStarted"].Count != pods*(containers+1) {
				t.Fatalf("start: %+v", r)
			}
			ask(control.Command{Do: control.ClientExpect, Want: map[string]int{"ContainerDied": pods * containers}})
			runtime.Burst(pods, simruntime.Exit)
			r := ask(control.Command{Do: control.ClientWait, TimeoutMS: 60_000})
			if died := r.Seen["ContainerDied"]; !r.Done || died.Count != pods*containers || died.LastMS < died.FirstMS {
				t.Errorf("burst: %+v", r)
			}
			if (r.Width > 0) != (name == "pipeline") {
				t.Errorf("width %d", r.Width)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunExplainsBadArguments(t *testing.T) {
	for want, c := range map[string]config{
		`unknown candidate "parallel"`: {candidate: "parallel"},
		"is not a unix socket":         {candidate: "serial", socket: "localhost:80"},
		"no runtime at -socket":        {candidate: "serial", socket: "/no-such-socket"},
		"no-such-folder":               {candidate: "serial", socket: "/dev/null", timeout: time.Second, profile: filepath.Join(t.TempDir(), "no-such-folder", "p")},
	} {
		if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", c, err, want)
		}
	}
}

func serve(t *testing.T) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	runtime, err := simruntime.New(simruntime.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- runtime.ListenAndServe(ctx, socket) }()
	client, err := cri.New(socket, cri.Options{UnaryLists: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return runtime, client
}

// talk serves a candidate; end stops it and returns its error.
func talk(t *testing.T, candidate probe.Candidate, width probe.Width) (ask func(control.Command) control.Report, end func() error) {
	t.Helper()
	commandsIn, commandsOut := io.Pipe()
	reportsIn, reportsOut := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := probe.Serve(t.Context(), candidate, width, commandsIn, reportsOut)
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
	return ask, func() error {
		return errors.Join(commandsOut.Close(), <-served)
	}
}
