package server_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// BenchmarkReplay connects and gets the present state of all pods over a socket.
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

// replayed returns the number of events up to Synced.
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

// serveBench returns a client of a pipeline that knows all of its pods.
func serveBench(b *testing.B, pods int) *client.Client {
	b.Helper()
	pipe := kit.New(b, pipeline.Options{RelistPeriod: time.Hour})
	kit.Fill(pipe.Runtime, pods, "c=running /s=running")
	sub, err := pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 2 * pods})
	if err != nil {
		b.Fatal(err)
	}
	s, err := server.New(pipe.Pipeline, server.Options{})
	if err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(b.TempDir(), "pleg.sock")
	l, err := server.Listen(b.Context(), socket)
	if err != nil {
		b.Fatal(err)
	}
	pipe.Start(b)
	kit.Run(b, func(ctx context.Context) error { return s.Serve(ctx, l) })
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
