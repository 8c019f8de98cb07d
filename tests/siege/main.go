// Command siege attacks a daemon while hundreds of readers follow it, and checks that no
// reader loses an event without being told, that memory stays bounded, that the daemon
// answers its probe, and that it keeps no memory of the siege. It uses only sockets, as anybody
// could.
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
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

const (
	address = "127.0.0.1:19310"
	health  = "127.0.0.1:19311"
	// readerProcesses each run an equal part of the readers.
	readerProcesses = 10
	// maxRSS and maxProbe are limits of the daemon.
	maxRSS   = 256 << 20
	maxProbe = 100 * time.Millisecond
	// probeTimeout ends a probe, and is the time that a failed probe counts as.
	probeTimeout = 10 * time.Second
	probePeriod  = 200 * time.Millisecond
	// memoryLimit makes the daemon collect garbage before it comes near maxRSS. An
	// operator sets it below the limit of the cgroup.
	memoryLimit = "GOMEMLIMIT=200MiB"
	// restTime is how long the daemon may take to forget the siege: Go collects garbage at least
	// every two minutes.
	restTime = 150 * time.Second
)

// mayRemain is the permitted growth of each metric after a siege. Resident memory says less than
// the heap: Go returns it slowly.
var mayRemain = map[string]float64{"go_goroutines": 10, "process_open_fds": 5, "go_gc_heap_live_bytes": 32 << 20}

// siege is the target of the attack, and its means.
type siege struct {
	program                 string
	duration                time.Duration
	grpcReaders, sseReaders int
	only                    string
	// part is the role of this process, and socket the daemon's socket; empty in the process that
	// starts the others.
	part, socket string
}

func main() {
	var s siege
	flag.StringVar(&s.program, "program", "bin/siege/pleg-pipeline", "the `PROGRAM`")
	flag.DurationVar(&s.duration, "duration", 3*time.Minute, "how long the siege lasts")
	flag.IntVar(&s.grpcReaders, "grpc", 500, "readers of the socket")
	flag.IntVar(&s.sseReaders, "sse", 200, "readers of server-sent events")
	flag.StringVar(&s.only, "only", "", "attack only in ways whose names contain this `TEXT`")
	flag.StringVar(&s.part, "part", "", "only be the `PART` read or attack of a siege")
	flag.StringVar(&s.socket, "socket", "", "the `PATH` of the daemon's socket, for -part")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(1)
	}
}

func (s *siege) do(ctx context.Context) error {
	switch s.part {
	case "read":
		return json.NewEncoder(os.Stdout).Encode(s.read(ctx))
	case "attack":
		s.attack(ctx)
		return nil
	}
	return s.run(ctx)
}

func (s *siege) run(ctx context.Context) (err error) {
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
	defer func() { err = errors.Join(err, d.Stop()) }()
	fmt.Println(memoryLimit, d.Cmd)
	before, err := d.Metrics(ctx)
	if err != nil {
		return err
	}
	besieged, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	s.socket = d.Socket
	var parts errgroup.Group
	readers := make([][]*reader, readerProcesses)
	for i := range readers {
		parts.Go(func() error {
			out, err := s.start(besieged, "read")
			return cmp.Or(err, json.Unmarshal(out, &readers[i]))
		})
	}
	var attacks []byte
	parts.Go(func() (err error) { attacks, err = s.start(besieged, "attack"); return err })
	probes, peak, err := probe(besieged, d.PID())
	cancel()
	if err := errors.Join(err, parts.Wait()); err != nil {
		return err
	}
	fmt.Printf("%s", attacks)
	return errors.Join(judgeReaders(slices.Concat(readers...)), judgeDaemon(probes, peak), judgeRest(ctx, d, before))
}

// start runs a part of the siege in a process of its own until ctx ends, and returns its output.
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

// require returns an error unless ok.
func require(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func judgeReaders(readers []*reader) error {
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
		sum.ended += max(0, reader.Ended-1) // the end of the siege ends the last stream
		sum.events += reader.Events
		sum.lost += reader.Lost
		sum.repeated += reader.Repeated
	}
	fmt.Printf("readers   %d of %d served, %d events; %d were told that they missed some; %d streams ended early; %d events lost without a Gap\n",
		sum.served, len(readers), sum.events, sum.told, sum.ended, sum.lost)
	return errors.Join(
		require(sum.lost == 0, "%d events were lost without a Gap", sum.lost),
		require(sum.repeated == 0, "%d events came twice", sum.repeated),
		require(sum.served == len(readers) && sum.events > 0, "%d of %d readers were served, with %d events", sum.served, len(readers), sum.events),
	)
}

func judgeDaemon(probes []time.Duration, peak int64) error {
	if len(probes) == 0 {
		return errors.New("no probe was made")
	}
	slices.Sort(probes)
	quantile := func(share float64) time.Duration { return probes[min(len(probes)-1, int(float64(len(probes))*share))] }
	slow, failed := 0, 0
	for _, took := range probes {
		if took > maxProbe {
			slow++
		}
		if took >= probeTimeout {
			failed++
		}
	}
	fmt.Printf("/livez    %d probes: median %v, 99 %% %v, longest %v; %d above %v, %d failed\n", len(probes), quantile(0.5).Round(time.Microsecond),
		quantile(0.99).Round(time.Microsecond), quantile(1).Round(time.Microsecond), slow, maxProbe, failed)
	fmt.Printf("memory    at most %d MiB\n", peak>>20)
	return errors.Join(
		require(failed == 0, "%d probes of /livez failed", failed),
		require(quantile(0.99) <= maxProbe, "/livez took %v, more than %v", quantile(0.99), maxProbe),
		require(peak <= maxRSS, "the daemon took %d MiB, more than %d", peak>>20, maxRSS>>20),
	)
}

// judgeRest waits until the daemon keeps no more than [mayRemain].
func judgeRest(ctx context.Context, d *daemon.Daemon, before map[string]float64) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	return process.Await(ctx, func(ctx context.Context) error {
		after, err := d.Metrics(ctx)
		for metric, most := range mayRemain {
			_, known := after[metric]
			err = errors.Join(err, require(known && after[metric] <= before[metric]+most, "%s was %v before the siege and is %v", metric, before[metric], after[metric]))
		}
		if err == nil {
			fmt.Printf("rest      after %v: %v goroutines, before %v; %v files, before %v; %.0f MiB of heap, before %.0f\n", time.Since(began).Round(time.Second),
				after["go_goroutines"], before["go_goroutines"], after["process_open_fds"], before["process_open_fds"],
				after["go_gc_heap_live_bytes"]/(1<<20), before["go_gc_heap_live_bytes"]/(1<<20))
		}
		return err
	})
}

// probe asks for /livez five times a second, each time on a new connection as the kubelet
// does, until ctx ends. It returns how long that took and the highest RSS of the daemon.
func probe(ctx context.Context, pid int) (probes []time.Duration, peak int64, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeTimeout}
	for backoff.Wait(ctx, probePeriod) == nil {
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
