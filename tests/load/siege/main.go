// Command siege attacks a daemon while hundreds of readers follow it, and checks that no
// reader loses an event without being told, that memory stays bounded, and that the daemon
// answers its probe. It uses only sockets, as anybody could.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

const (
	address = "127.0.0.1:19310"
	health  = "127.0.0.1:19311"
	// readerProcesses each have an equal part of the readers.
	readerProcesses = 10
	// maxRSS and maxProbe are what the daemon must keep.
	maxRSS   = 256 << 20
	maxProbe = 100 * time.Millisecond
	// probeTimeout is also the time of a probe that failed.
	probeTimeout = 10 * time.Second
	probePeriod  = 200 * time.Millisecond
	// memoryLimit makes the daemon collect garbage before it comes near maxRSS. An
	// operator sets it below the limit of the cgroup.
	memoryLimit = "GOMEMLIMIT=200MiB"
)

// siege is what is attacked, and how.
type siege struct {
	program                 string
	duration                time.Duration
	grpcReaders, sseReaders int
	attacked                bool
	only                    string
	// part is what this process does, and socket the daemon's socket; empty in the process that
	// starts the others.
	part, socket string
}

func main() {
	var s siege
	flag.StringVar(&s.program, "program", "bin/pleg-pipeline", "the `PROGRAM`")
	flag.DurationVar(&s.duration, "duration", 3*time.Minute, "how long the siege lasts")
	flag.IntVar(&s.grpcReaders, "grpc", 500, "readers of the socket")
	flag.IntVar(&s.sseReaders, "sse", 200, "readers of server-sent events")
	flag.BoolVar(&s.attacked, "attacks", true, "attack")
	flag.StringVar(&s.only, "only", "", "attack only in ways whose names contain this `TEXT`")
	flag.StringVar(&s.part, "part", "", "only be the `PART` read or attack of a siege")
	flag.StringVar(&s.socket, "socket", "", "the `PATH` of the daemon's socket, for -part")
	flag.Parse()
	r := load.NewRun("siege", os.Stdout)
	os.Exit(load.Main(r, func(ctx context.Context) error {
		switch s.part {
		case "read":
			return json.NewEncoder(os.Stdout).Encode(s.read(ctx))
		case "attack":
			s.attack(ctx)
			return nil
		}
		return s.run(ctx, r)
	}))
}

func (s *siege) run(ctx context.Context, r *load.Run) error {
	dir, err := os.MkdirTemp("", "siege")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// The attackers get the default bounds; the readers are added to them.
	d, err := daemon.Start(ctx, daemon.Options{
		Program: s.program, Dir: dir, Name: "pleg", Env: []string{memoryLimit},
		Args: []string{"--simulate=110", "--churn-rate", "10", "--listen", address, "--health-listen", health},
		Settings: daemon.Settings{
			"max-connections": strconv.Itoa(1024 + s.grpcReaders), "max-watchers": strconv.Itoa(1024 + s.grpcReaders),
			"max-event-streams": strconv.Itoa(64 + s.sseReaders),
		},
	})
	if err != nil {
		return err
	}
	defer func() { r.Require(d.Stop() == nil, "the daemon did not end in order: %s", d.Tail()) }()
	fmt.Println(memoryLimit, d.Cmd)
	ctx, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	s.socket = d.Socket
	var parts errgroup.Group
	readers := make([][]*reader, readerProcesses)
	for i := range readers {
		parts.Go(func() error {
			out, err := s.start(ctx, "read")
			return cmp.Or(err, json.Unmarshal(out, &readers[i]))
		})
	}
	var attacks []byte
	if s.attacked {
		parts.Go(func() (err error) { attacks, err = s.start(ctx, "attack"); return err })
	}
	probes, peak, err := probe(ctx, d.PID())
	use, useErr := process.UseOf(d.PID())
	waited, waitErr := process.WaitOf(d.PID())
	cancel()
	if err := errors.Join(err, useErr, waitErr, parts.Wait()); err != nil {
		return err
	}
	fmt.Printf("%s", attacks)
	judgeReaders(r, slices.Concat(readers...))
	fmt.Printf("processor the daemon ran for %v and waited for %v, so the machine was %.1f times too small\n",
		use.CPU.Round(time.Second), waited.Round(time.Second), (use.CPU+waited).Seconds()/use.CPU.Seconds())
	judgeDaemon(r, probes, peak)
	return nil
}

// start runs a part of the siege in a process of its own until ctx ends, and returns what it
// prints.
func (s *siege) start(ctx context.Context, part string) ([]byte, error) {
	itself, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, itself, "-part", part, "-socket", s.socket, "-only", s.only,
		"-grpc", strconv.Itoa(s.grpcReaders/readerProcesses), "-sse", strconv.Itoa(s.sseReaders/readerProcesses))
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.Output()
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("part %s: %w", part, err)
	}
	return out, nil
}

func judgeReaders(r *load.Run, readers []*reader) {
	var sum struct {
		served, events, told, ended int
		lost, repeated              uint64
	}
	for _, reader := range readers {
		if reader.Served {
			sum.served++
		}
		if reader.Told > 0 {
			sum.told++
		}
		sum.ended += max(0, reader.Ended-1) // the siege ends the last one
		sum.events += reader.Events
		sum.lost += reader.Lost
		sum.repeated += reader.Repeated
	}
	fmt.Printf("readers   %d of %d served, %d events; %d were told that they missed some; %d streams ended early; %d events lost without a Gap\n",
		sum.served, len(readers), sum.events, sum.told, sum.ended, sum.lost)
	r.Require(sum.lost == 0, "%d events were lost without a Gap", sum.lost)
	r.Require(sum.repeated == 0, "%d events came twice", sum.repeated)
	r.Require(sum.served == len(readers) && sum.events > 0, "%d of %d readers were served, with %d events", sum.served, len(readers), sum.events)
}

func judgeDaemon(r *load.Run, probes load.Times, peak int64) {
	slow, failed := 0, 0
	for _, took := range probes {
		if took > maxProbe {
			slow++
		}
		if took >= probeTimeout {
			failed++
		}
	}
	fmt.Printf("/livez    %d probes: median %v, 99 %% %v, longest %v; %d above %v, %d failed\n", len(probes), probes.Quantile(0.5).Round(time.Microsecond),
		probes.Quantile(0.99).Round(time.Microsecond), probes.Quantile(1).Round(time.Microsecond), slow, maxProbe, failed)
	fmt.Printf("memory    at most %d MiB\n", peak>>20)
	r.Require(len(probes) > 0, "no probe was made")
	r.Require(failed == 0, "%d probes of /livez failed", failed)
	r.Require(probes.Quantile(0.99) <= maxProbe, "/livez took %v, more than %v", probes.Quantile(0.99), maxProbe)
	r.Require(peak <= maxRSS, "the daemon took %d MiB, more than %d", peak>>20, maxRSS>>20)
}

// probe asks for /livez five times a second, each time on a new connection as the kubelet
// does, until ctx ends. It returns how long that took and the highest RSS of the daemon.
func probe(ctx context.Context, pid int) (probes load.Times, peak int64, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeTimeout}
	for load.Sleep(ctx, probePeriod) {
		began := time.Now()
		resp, err := client.Get("http://" + health + "/livez")
		took := time.Since(began)
		if err != nil || resp.StatusCode != http.StatusOK {
			fmt.Printf("/livez    failed after %v: %v\n", took, err)
			took = probeTimeout
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		use, err := process.UseOf(pid)
		if err != nil {
			return nil, 0, err
		}
		probes, peak = append(probes, took), max(peak, use.RSS)
	}
	return probes, peak, nil
}
