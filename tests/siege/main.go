// Command siege attacks a daemon while hundreds of readers follow it, and checks that no
// reader loses an event without being told, that memory stays bounded, and that the daemon
// answers its probe. It uses only sockets, as anybody could.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	address = "127.0.0.1:19310"
	// maxRSS and maxProbe are what the daemon must keep.
	maxRSS   = 256 << 20
	maxProbe = 100 * time.Millisecond
	// probeTimeout is also the time of a probe that failed.
	probeTimeout = 10 * time.Second
	// memoryLimit makes the daemon collect garbage before it comes near maxRSS. An
	// operator sets it below the limit of the cgroup.
	memoryLimit = "GOMEMLIMIT=200MiB"
)

func main() {
	program := flag.String("program", "bin/pleg-pipeline", "the `PROGRAM`")
	duration := flag.Duration("duration", 3*time.Minute, "how long the siege lasts")
	grpcReaders := flag.Int("grpc", 500, "readers of the socket")
	sseReaders := flag.Int("sse", 200, "readers of server-sent events")
	attacked := flag.Bool("attacks", true, "attack")
	only := flag.String("only", "", "attack only in ways whose names contain this `TEXT`")
	pid := flag.Int("probe", 0, "only probe the daemon that is this `PROCESS`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *pid != 0 {
		probe(ctx, *pid)
		return
	}
	if err := besiege(ctx, *program, *duration, *grpcReaders, *sseReaders, *attacked, *only); err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(1)
	}
}

func besiege(ctx context.Context, program string, duration time.Duration, grpcReaders, sseReaders int, attacked bool, only string) error {
	dir, err := os.MkdirTemp("", "siege")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "pleg.sock")
	// There is room for the readers, and for the attackers as much as there is by default.
	daemon := exec.CommandContext(ctx, program, "run", "--simulate=110", "--churn-rate", "10", "--quiet", "--socket", socket, "--listen", address,
		"--max-connections", strconv.Itoa(256+grpcReaders), "--max-watchers", strconv.Itoa(128+grpcReaders),
		"--max-event-streams", strconv.Itoa(64+sseReaders), "--client-buffer", "64")
	daemon.Env = append(os.Environ(), memoryLimit)
	fmt.Println(memoryLimit, daemon)
	daemon.Stderr = os.Stderr
	daemon.Cancel = func() error { return daemon.Process.Signal(os.Interrupt) }
	if err := daemon.Start(); err != nil {
		return err
	}
	defer func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
	}()
	if err := awaitDaemon(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var running sync.WaitGroup
	readers := startReaders(ctx, &running, socket, grpcReaders, sseReaders)
	var attacks []*attack
	if attacked {
		attacks = startAttacks(ctx, &running, socket, only)
	}
	probes, peak, err := observe(ctx, daemon.Process.Pid)
	running.Wait()
	if err != nil {
		return err
	}
	return report(readers, attacks, probes, peak)
}

func awaitDaemon(ctx context.Context) error {
	for range 100 {
		if resp, err := http.Get("http://" + address + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("no daemon is ready at %s", address)
}

// observe starts a process that probes, because the readers delay all goroutines of this one,
// and returns the times that the probes took and the highest RSS in bytes.
func observe(ctx context.Context, pid int) (probes []time.Duration, peak int, err error) {
	itself, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	prober := exec.CommandContext(ctx, itself, "-probe", strconv.Itoa(pid))
	prober.Stderr = os.Stderr
	prober.Cancel = func() error { return prober.Process.Signal(os.Interrupt) }
	out, err := prober.Output()
	if err != nil && ctx.Err() == nil {
		return nil, 0, fmt.Errorf("probe: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var took time.Duration
		var rss int
		if _, err := fmt.Sscanf(line, "%d %d", &took, &rss); err != nil {
			return nil, 0, fmt.Errorf("probe: %q: %w", line, err)
		}
		probes, peak = append(probes, took), max(peak, rss)
	}
	return probes, peak, nil
}

// probe asks for /livez five times a second, each time on a new connection as the kubelet
// does, and prints how long that took and the RSS of the daemon.
func probe(ctx context.Context, pid int) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeTimeout}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		resp, err := client.Get("http://" + address + "/livez")
		took := time.Since(began)
		if err != nil || resp.StatusCode != http.StatusOK {
			took = probeTimeout
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		fmt.Println(int64(took), rss(pid))
	}
}

func rss(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(value)[0])
			return kib << 10
		}
	}
	return 0
}

func report(readers []*reader, attacks []*attack, probes []time.Duration, peak int) error {
	for _, a := range attacks {
		fmt.Printf("attack    %-34s %d rounds, %d refused\n", a.name, a.rounds.Load(), a.refused.Load())
	}
	served, told, ended, events, lost := judge(readers)
	slices.Sort(probes)
	if len(probes) == 0 {
		return fmt.Errorf("no probe was made")
	}
	slow, failed := 0, 0
	for _, took := range probes {
		if took > maxProbe {
			slow++
		}
		if took >= probeTimeout {
			failed++
		}
	}
	fmt.Printf("readers   %d of %d served, %d events; %d were told that they missed some; %d streams ended early; %d events lost without a word\n",
		served, len(readers), events, told, ended, lost)
	fmt.Printf("/livez    %d probes: median %v, 99 %% %v, longest %v; %d above %v, %d failed\n", len(probes), probes[len(probes)/2].Round(time.Microsecond),
		probes[len(probes)*99/100].Round(time.Microsecond), probes[len(probes)-1].Round(time.Microsecond), slow, maxProbe, failed)
	fmt.Printf("memory    at most %d MiB\n", peak>>20)
	switch {
	case lost > 0:
		return fmt.Errorf("%d events were lost without a word", lost)
	case served < len(readers) || events == 0:
		return fmt.Errorf("%d of %d readers were not served", len(readers)-served, len(readers))
	case peak > maxRSS:
		return fmt.Errorf("the daemon took %d MiB, more than %d", peak>>20, maxRSS>>20)
	case failed > 0:
		return fmt.Errorf("%d probes of /livez failed", failed)
	case probes[len(probes)/2] > maxProbe || probes[len(probes)*99/100] > maxProbe:
		return fmt.Errorf("/livez took %v, more than %v", probes[len(probes)*99/100], maxProbe)
	}
	return nil
}
