package httpserver

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// loopback is the default host, because answers can name the pods of the node: other
// machines can connect only if the user names a host.
const loopback = "127.0.0.1"

// ParseAddress completes an address to listen on: "9090" and ":9090" become
// 127.0.0.1:9090; any other address must be host:port. Port 0 means any free port.
func ParseAddress(address string) (string, error) {
	if !strings.Contains(address, ":") {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q is not an address: want PORT, :PORT or HOST:PORT", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q is not a port: want 0 to 65535", port)
	}
	if host == "" {
		host = loopback
	}
	return net.JoinHostPort(host, port), nil
}
