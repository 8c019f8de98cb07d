package simruntime_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func Example() {
	rt := simruntime.New(simruntime.Options{Seed: 1})
	pod := rt.AddPod(simruntime.PodSpec{Name: "web-0", Containers: []pleg.ContainerStatus{{Name: "nginx"}}})

	l := bufconn.Listen(1 << 16) // or rt.ListenAndServe(ctx, "/run/sim.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, l) }()
	conn, err := grpc.NewClient("passthrough:///sim", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		panic(err)
	}

	if err := rt.ExitContainer(pod.Containers[0].ID, 137, "OOMKilled"); err != nil {
		panic(err)
	}
	resp, err := cri.NewRuntimeServiceClient(conn).ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: string(pod.Containers[0].ID)})
	fmt.Println(resp.GetStatus().GetMetadata().GetName(), resp.GetStatus().GetReason(), err)
	fmt.Println("calls:", rt.Stats().Calls())

	cancel()
	fmt.Println("Serve:", <-served)
	fmt.Println("Close:", conn.Close())
	// Output:
	// nginx OOMKilled <nil>
	// calls: 1
	// Serve: context canceled
	// Close: <nil>
}
