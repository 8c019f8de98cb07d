package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
)

// floodConnections is the number of connections of a flood.
const floodConnections = 8

// conn is a connection to the socket that speaks HTTP/2 as it likes.
type conn struct {
	*http2.Framer
	headers *hpack.Encoder
	block   *bytes.Buffer
	stream  uint32 // the last stream that was opened
}

// flood writes frames on connections of its own as fast as the daemon reads them. A connection that
// the daemon closes counts as refused, and is opened again.
func (s *siege) flood(open, write func(*conn) error) func(context.Context, *attack) {
	return func(ctx context.Context, a *attack) {
		var flooding sync.WaitGroup
		for range floodConnections {
			flooding.Go(func() {
				for ctx.Err() == nil {
					if s.floodOnce(ctx, open, write) != nil && ctx.Err() == nil {
						a.refused.Add(1)
					}
				}
			})
		}
		flooding.Wait()
	}
}

func (s *siege) floodOnce(ctx context.Context, open, write func(*conn) error) error {
	raw, err := (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	defer func() { _ = raw.Close() }()
	go func() { _, _ = io.Copy(io.Discard, raw) }() // until the connection is closed
	if _, err := io.WriteString(raw, http2.ClientPreface); err != nil {
		return err
	}
	c := &conn{Framer: http2.NewFramer(raw, nil), block: new(bytes.Buffer)}
	c.headers = hpack.NewEncoder(c.block)
	if err := c.WriteSettings(); err != nil {
		return err
	}
	for err = open(c); err == nil; {
		err = write(c)
	}
	return err
}

// call opens a stream with the headers of a call, and with further headers.
func (c *conn) call(others ...hpack.HeaderField) error {
	c.block.Reset()
	for _, h := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: plegv1.PLEG_Watch_FullMethodName},
		{Name: ":authority", Value: "localhost"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, others...) {
		if err := c.headers.WriteField(h); err != nil {
			return err
		}
	}
	c.stream = max(1, c.stream+2)
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.block.Bytes(), EndHeaders: true})
}

func nothing(*conn) error { return nil }

func settings(c *conn) error {
	return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
}

func openCall(c *conn) error { return c.call() }

func emptyData(c *conn) error { return c.WriteData(c.stream, false, nil) }

// headerBomb opens a call whose headers are a thousand times as large as the bytes that are sent.
func headerBomb(c *conn) error {
	bomb := make([]hpack.HeaderField, 4000) // each but the first is one byte
	for i := range bomb {
		bomb[i] = hpack.HeaderField{Name: "bomb", Value: strings.Repeat("b", 3000)}
	}
	return c.call(bomb...)
}
