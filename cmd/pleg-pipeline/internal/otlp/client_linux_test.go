package otlp_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Linux ends a connection on which nobody acknowledges a request for 20 s, as through a dead network.
func TestDeadNetwork(t *testing.T) {
	s := listen(t, nil)
	client, err := otlp.NewClient(t.Context(), s.URL)
	kit.Must(t, err)
	kit.Must(t, client.Export(t.Context(), make([]sdklog.Record, 1)))
	files, err := os.ReadDir("/proc/self/fd")
	kit.Must(t, err)
	var limits []int
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		kit.Must(t, err)
		to, _ := unix.Getpeername(fd)
		if to, ok := to.(*unix.SockaddrInet4); ok && strings.HasSuffix(s.URL, fmt.Sprint(":", to.Port)) {
			ms, _ := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			limits = append(limits, ms)
		}
	}
	if err := client.Shutdown(t.Context()); err != nil || len(limits) != 1 || limits[0] != 20_000 {
		t.Errorf("limits of %v ms, %v, want one of 20 s", limits, err)
	}
}
