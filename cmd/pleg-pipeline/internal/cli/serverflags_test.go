package cli_test

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
)

// TestRunBoundsClients requires that the flags bound the clients of a daemon.
func TestRunBoundsClients(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	s := start(t, newTranscript(), "run", "--simulate=1", "--churn-rate", "0", "--quiet", "--socket", socket, "--listen", "127.0.0.1:0",
		"--max-connections", "2", "--max-watchers", "1", "--max-event-streams", "1")
	defer s.stopAndWait(t)
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(s.stderr.await(t, "connected to"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET /events: %d, want %d", resp.StatusCode, want)
		}
	}
	for n, want := range []string{"", "too many watchers: this server takes 1 at a time", "too many connections: this server takes 2 at a time"} {
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		stream, err := plegv1.NewPLEGClient(conn).Watch(ctx, &plegv1.WatchRequest{Replay: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if got := status.Convert(err); got.Message() != want || want != "" && got.Code() != codes.ResourceExhausted {
			t.Errorf("watcher %d: %v, want %q", n, err, want)
		}
	}
}
