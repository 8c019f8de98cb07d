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
)

func main() {
	program := flag.String("program", "bin/pleg-pipeline", "the `PROGRAM`")
	duration := flag.Duration("duration", 3*time.Minute, "how long the siege lasts")
	grpcReaders := flag.Int("grpc", 500, "readers of the socket")
	sseReaders := flag.Int("sse", 200, "readers of server-sent events")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := besiege(ctx, *program, *duration, *grpcReaders, *sseReaders); err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(1)
	}
}

func besiege(ctx context.Context, program string, duration time.Duration, grpcReaders, sseReaders int) error {
	dir, err := os.MkdirTemp("", "siege")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "pleg.sock")
	daemon := exec.CommandContext(ctx, program, "run", "--simulate=110", "--churn-rate", "10", "--quiet", "--socket", socket, "--listen", address)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	daemon.Stderr = log
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
	attacks := startAttacks(ctx, &running, socket)
	probes, peak := observe(ctx, daemon.Process.Pid)
	running.Wait()
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

// observe probes /livez five times a second, each on a new connection as the kubelet does,
// and returns the times that it took and the highest RSS in bytes.
func observe(ctx context.Context, pid int) (probes []time.Duration, peak int) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return probes, peak
		}
		peak = max(peak, rss(pid))
		began := time.Now()
		resp, err := client.Get("http://" + address + "/livez")
		took := time.Since(began)
		if err != nil || resp.StatusCode != http.StatusOK {
			took = client.Timeout
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		probes = append(probes, took)
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
	served, told, events, lost := judge(readers)
	slices.Sort(probes)
	if len(probes) == 0 {
		return fmt.Errorf("no probe was made")
	}
	slow := 0
	for _, took := range probes {
		if took > maxProbe {
			slow++
		}
	}
	fmt.Printf("readers   %d of %d served, %d events; %d were told that they missed some; %d events lost without a word\n", served, len(readers), events, told, lost)
	fmt.Printf("/livez    %d probes: median %v, 99 %% %v, longest %v; %d above %v\n", len(probes), probes[len(probes)/2].Round(time.Microsecond),
		probes[len(probes)*99/100].Round(time.Microsecond), probes[len(probes)-1].Round(time.Microsecond), slow, maxProbe)
	fmt.Printf("memory    at most %d MiB\n", peak>>20)
	switch {
	case lost > 0:
		return fmt.Errorf("%d events were lost without a word", lost)
	case served == 0 || events == 0:
		return fmt.Errorf("no reader was served")
	case peak > maxRSS:
		return fmt.Errorf("the daemon took %d MiB, more than %d", peak>>20, maxRSS>>20)
	case probes[len(probes)*99/100] > maxProbe:
		return fmt.Errorf("/livez took %v, more than %v", probes[len(probes)*99/100], maxProbe)
	}
	return nil
}
