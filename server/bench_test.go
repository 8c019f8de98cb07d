package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodetest"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// BenchmarkReplay connects, and gets the present state of all pods over a
// socket.
func BenchmarkReplay(b *testing.B) {
	for _, pods := range []int{100, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			c := serveBench(b, pods)
			b.ReportAllocs()
			for b.Loop() {
				if n := replayed(b, c); n != 2*pods {
					b.Fatalf("%d events, want %d", n, 2*pods)
				}
			}
		})
	}
}

// replayed returns how many events there are up to Synced.
func replayed(b *testing.B, c *client.Client) (n int) {
	for ev, err := range c.Watch(b.Context(), client.WatchOptions{Replay: true}) {
		if err != nil {
			b.Fatal(err)
		}
		if ev.Type == pleg.Synced {
			break
		}
		n++
	}
	return n
}

// serveBench returns a client of a node whose pods are all known.
func serveBench(b *testing.B, pods int) *client.Client {
	b.Helper()
	node := nodetest.New()
	node.Fill(pods, "c=running /s=running")
	pipe, err := pipeline.New(pipeline.Options{Runtime: node, RelistPeriod: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	sub, err := pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 2 * pods})
	if err != nil {
		b.Fatal(err)
	}
	s, err := server.New(pipe, server.Options{})
	if err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(b.TempDir(), "pleg.sock")
	l, err := server.Listen(b.Context(), socket)
	if err != nil {
		b.Fatal(err)
	}
	endPipe := start(pipe.Run)
	end := start(func(ctx context.Context) error { return s.Serve(ctx, l) })
	b.Cleanup(func() {
		_ = end()
		_ = endPipe()
	})
	for range 2 * pods {
		<-sub.Events()
	}
	sub.Close()
	c, err := client.New(socket, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}
