package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// attack repeats one kind of abuse. A round ends by itself or after 5 s.
type attack struct {
	name            string
	once            func(ctx context.Context, a *attack)
	rounds, refused atomic.Int64
}

const roundTime = 5 * time.Second

// attack attacks until ctx ends, and prints how often.
func (s *siege) attack(ctx context.Context) {
	var running sync.WaitGroup
	attacks := []*attack{
		{name: "2,048 unread lists of pods", once: s.calls(32, 64, unreadList)},
		{name: "2,048 unread statuses", once: s.calls(32, 64, unreadStatus)},
		{name: "2,048 waits for a far time", once: s.calls(32, 64, farStatus)},
		{name: "2,048 watches of the health", once: s.calls(32, 64, healthWatch)},
		{name: "watches with large selectors", once: s.calls(4, 32, selector)},
		{name: "floods of HTTP/2 settings", once: s.flood(nothing, settings)},
		{name: "floods of empty data", once: s.flood(openCall, emptyData)},
		{name: "header bombs", once: s.flood(nothing, headerBomb)},
		{name: "10,000 idle HTTP connections", once: idleConnections},
		{name: "lists of pods over HTTP", once: httpPods},
	}
	attacks = slices.DeleteFunc(attacks, func(a *attack) bool { return !strings.Contains(a.name, s.only) })
	for _, a := range attacks {
		running.Go(func() {
			for ctx.Err() == nil {
				round, cancel := context.WithTimeout(ctx, roundTime)
				a.once(round, a)
				<-round.Done()
				cancel()
				a.rounds.Add(1)
			}
		})
	}
	running.Wait()
	for _, a := range attacks {
		fmt.Printf("attack    %-34s %d rounds, %d refused\n", a.name, a.rounds.Load(), a.refused.Load())
	}
}

// calls starts calls on connections of its own and leaves them alone until the round ends.
func (s *siege) calls(connections, each int, start func(context.Context, *grpc.ClientConn) error) func(context.Context, *attack) {
	return func(ctx context.Context, a *attack) {
		var started sync.WaitGroup
		for range connections {
			// A window of one byte more than HTTP's least keeps answers at the server.
			conn, err := grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10))
			if err != nil {
				continue
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			for range each {
				started.Go(func() {
					if start(ctx, conn) != nil && ctx.Err() == nil {
						a.refused.Add(1)
					}
				})
			}
		}
		started.Wait()
	}
}

func unreadList(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := plegv1.NewPLEGClient(conn).ListPods(ctx, &plegv1.ListPodsRequest{})
	return err
}

// unreadStatus asks with the methods of a stream, so that nothing reads the answer.
func unreadStatus(ctx context.Context, conn *grpc.ClientConn) error {
	for method, request := range map[string]any{
		plegv1.PLEG_GetStatus_FullMethodName: &plegv1.GetStatusRequest{},
		plegv1.PLEG_Watch_FullMethodName:     &plegv1.WatchRequest{Replay: true},
	} {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(request); err != nil {
			return err
		}
	}
	return nil
}

func farStatus(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := plegv1.NewPLEGClient(conn).GetPodStatus(ctx, &plegv1.GetPodStatusRequest{PodUid: "none", NewerThan: timestamppb.New(time.Now().Add(time.Hour))})
	return err
}

func healthWatch(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

func selector(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := plegv1.NewPLEGClient(conn).Watch(ctx, &plegv1.WatchRequest{LabelSelector: strings.Repeat("!a,", 21_000) + "!a"})
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

func idleConnections(ctx context.Context, a *attack) {
	for range 10_000 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			if ctx.Err() == nil {
				a.refused.Add(1)
			}
			return
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
}

// httpPods asks for all pods with 64 clients at once.
func httpPods(ctx context.Context, a *attack) {
	var asking sync.WaitGroup
	for range 64 {
		asking.Go(func() {
			for ctx.Err() == nil {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/pods", nil)
				if err != nil {
					return
				}
				resp, err := http.DefaultClient.Do(request)
				if err != nil {
					continue
				}
				if resp.StatusCode != http.StatusOK {
					a.refused.Add(1)
				}
				_ = resp.Body.Close()
				_ = backoff.Wait(ctx, 100*time.Millisecond)
			}
		})
	}
	asking.Wait()
}
