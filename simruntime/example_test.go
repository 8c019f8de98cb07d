package simruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func Example() {
	rt, err := simruntime.New(simruntime.Options{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod, err := rt.AddPod(simruntime.PodSpec{
		Namespace: "shop", Name: "web-0", Containers: []simruntime.ContainerSpec{{Name: "nginx"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	l := bufconn.Listen(1 << 16) // or rt.ListenAndServe(ctx, "/run/sim.sock")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, l) }()

	conn, err := grpc.NewClient("passthrough:///sim",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := cri.NewRuntimeServiceClient(conn)

	if err := rt.ExitContainer(pod.Containers[0].ID, 137, simruntime.ReasonOOMKilled); err != nil {
		fmt.Println(err)
	}
	resp, err := client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: pod.Containers[0].ID})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(resp.GetStatus().GetMetadata().GetName(), resp.GetStatus().GetReason(), resp.GetStatus().GetExitCode())
	fmt.Println("calls:", rt.Stats().Calls())

	cancel()
	fmt.Println("canceled:", errors.Is(<-served, context.Canceled))
	if err := conn.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// nginx OOMKilled 137
	// calls: 1
	// canceled: true
}
