package cri

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// serveNodeAt makes the test binary serve a runtime on this socket, so that a benchmark
// measures the client alone.
const serveNodeAt = "CRI_TEST_SERVE_NODE_AT"

const benchPods = 1000

func TestMain(m *testing.M) {
	if socket := os.Getenv(serveNodeAt); socket != "" {
		if err := serveNode(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serveNode lists benchPods pods until its standard input ends.
func serveNode(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(encodedCodec{encoding.GetCodecV2(proto.Name)}),
		grpc.UnknownServiceHandler(newNodeServer().handle))
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // ends with the parent, at the latest
		server.Stop()
	}()
	fmt.Println("ready")
	return server.Serve(listener)
}

// encodedCodec sends answers that are encoded already.
type encodedCodec struct{ encoding.CodecV2 }

func (encodedCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (encodedCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// nodeServer has each answer four times, with the maps in different orders.
type nodeServer struct {
	answers map[string][4][]byte
	events  [][]byte
	calls   chan int
}

func newNodeServer() *nodeServer {
	var sandboxes, containers [4][]byte
	for i := range sandboxes {
		sandboxes[i], containers[i] = node(&testing.B{}, benchPods, nil)
	}
	s := &nodeServer{events: eventsOf(110, 5000), calls: make(chan int, 1), answers: map[string][4][]byte{
		runtimeapi.RuntimeService_ListPodSandbox_FullMethodName: sandboxes,
		runtimeapi.RuntimeService_ListContainers_FullMethodName: containers,
	}}
	s.calls <- 0
	return s
}

func (s *nodeServer) handle(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(nil); err != nil {
		return err
	}
	n := <-s.calls
	s.calls <- n + 1
	method, _ := grpc.MethodFromServerStream(stream)
	switch method {
	case runtimeapi.RuntimeService_Version_FullMethodName:
		return stream.SendMsg([]byte{})
	case runtimeapi.RuntimeService_GetContainerEvents_FullMethodName:
		for i := 0; ; i++ {
			if err := stream.SendMsg(s.events[i%len(s.events)]); err != nil {
				return err
			}
		}
	}
	return stream.SendMsg(s.answers[method][n%4])
}

// startNode runs serveNode in a process of its own.
func startNode(b *testing.B) (socket string) {
	b.Helper()
	socket = filepath.Join(b.TempDir(), "cri.sock")
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), serveNodeAt+"="+socket)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		if err := command.Wait(); err != nil {
			b.Error(err)
		}
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		b.Fatalf("server printed %q, %v", line, err)
	}
	return socket
}

// BenchmarkListPods lists an idle node. decoder=generated makes the same two parallel
// calls with the generated code, and joins without the list before.
func BenchmarkListPods(b *testing.B) {
	socket := startNode(b)
	client, err := New(socket, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	b.Run(fmt.Sprintf("pods=%d/decoder=table", benchPods), func(b *testing.B) {
		benchmarkList(b, func() ([]*pleg.Pod, error) { return client.ListPods(b.Context()) })
	})
	b.Run(fmt.Sprintf("pods=%d/decoder=generated", benchPods), func(b *testing.B) {
		benchmarkList(b, func() ([]*pleg.Pod, error) { return client.listGenerated(b.Context()) })
	})
}

func benchmarkList(b *testing.B, list func() ([]*pleg.Pod, error)) {
	b.ReportAllocs()
	if _, err := list(); err != nil {
		b.Fatal(err)
	}
	before := cpuTime(b)
	for b.Loop() {
		if pods, err := list(); err != nil || len(pods) != benchPods {
			b.Fatalf("%d pods, %v", len(pods), err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// cpuTime returns the CPU time of this process, including garbage collection.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
