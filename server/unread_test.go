package server_test

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// unread is a call of a client that accepts no byte of the answer. gRPC's own client always
// accepts some.
type unread struct {
	method  string
	request proto.Message
}

// leave makes calls on a new connection and reads none of the answers. The connection ends
// when ended is closed.
func (f *fixture) leave(calls ...unread) (ended <-chan struct{}) {
	f.Helper()
	conn, err := f.dial(f.Context(), "")
	kit.Must(f, err)
	f.Cleanup(func() { conn.Close() })
	const data, headers, settings, endStream, endHeaders = 0, 1, 4, 1, 4
	noWindow := []byte{0, 4, 0, 0, 0, 0} // SETTINGS_INITIAL_WINDOW_SIZE = 0
	sent := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, 0, 0, noWindow)...)
	for i, c := range calls {
		request, err := proto.Marshal(c.request)
		kit.Must(f, err)
		fields := field(":method", "POST") + field(":scheme", "http") + field(":path", c.method) + field(":authority", "a") +
			field("content-type", "application/grpc") + field("te", "trailers")
		id := uint32(2*i + 1)
		sent = append(sent, frame(headers, endHeaders, id, []byte(fields))...)
		sent = append(sent, frame(data, endStream, id, append([]byte{0, 0, 0, 0, byte(len(request))}, request...))...)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn)
	}()
	if _, err := conn.Write(sent); err != nil {
		f.Fatal(err)
	}
	synctest.Wait()
	return done
}

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), payload...)
}

// field is a header field as HPACK has it, without compression.
func field(name, value string) string {
	return "\x00" + string(rune(len(name))) + name + string(rune(len(value))) + value
}

// A client that gives calls up in the middle of their answers keeps its connection.
func TestGivenUp(t *testing.T) {
	for name, call := range map[string]func(*fixture, context.Context, context.CancelFunc, plegv1.PLEGClient){
		"Watch": func(f *fixture, ctx context.Context, cancel context.CancelFunc, c plegv1.PLEGClient) {
			brief := f.mustWatch(ctx, c, &plegv1.WatchRequest{Replay: true})
			if _, err := brief.Recv(); err != nil {
				f.Error(err)
			}
			cancel()
		},
		"GetPodStatus": func(_ *fixture, ctx context.Context, cancel context.CancelFunc, c plegv1.PLEGClient) {
			go func() {
				for range rand.IntN(50) {
					runtime.Gosched()
				}
				cancel()
			}()
			_, _ = c.GetPodStatus(ctx, &plegv1.GetPodStatusRequest{PodUid: "p0"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
				for _, uid := range kit.UIDs(30) {
					f.Runtime.Set(uid, "c=running")
				}
				kit.Relist(1)
				client := f.client()
				stays := f.mustWatch(t.Context(), client, &plegv1.WatchRequest{})
				for range 2000 {
					ctx, cancel := context.WithCancel(t.Context())
					call(f, ctx, cancel, client)
				}
				time.Sleep(server.AnswerTimeout + time.Millisecond)
				f.Runtime.Set("a", "c=running")
				if m, err := stays.Recv(); err != nil {
					t.Errorf("another call got %v, %v", m, err)
				}
			})
		})
	}
}
