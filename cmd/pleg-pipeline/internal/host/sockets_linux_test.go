package host_test

import (
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestKernelTellsUnreadBytes sends a message that nobody reads, among sockets of other kinds.
func TestKernelTellsUnreadBytes(t *testing.T) {
	for range 64 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		kit.Must(t, err)
		t.Cleanup(func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) })
	}
	l, path := kit.Socket(t)
	client, err := net.Dial("unix", path)
	kit.Must(t, err)
	defer client.Close()
	served, err := l.Accept()
	kit.Must(t, err)
	defer served.Close()
	unread := func() (bytes int) {
		sockets, err := host.Sockets()
		kit.Must(t, err)
		for _, s := range sockets {
			if s.Path != path {
				continue
			}
			bytes += s.Unread
			if !slices.ContainsFunc(sockets, func(end host.Socket) bool { return end.Inode == s.Peer && end.Peer == s.Inode && end.Path == "" }) {
				t.Errorf("%+v has no other end among %+v", s, sockets)
			}
		}
		return bytes
	}
	if n := unread(); n != 0 {
		t.Errorf("%d bytes are unread before anything was sent", n)
	}
	_, err = served.Write(make([]byte, 1000))
	kit.Must(t, err)
	if n := unread(); n < 1000 {
		t.Errorf("%d bytes are unread, want at least 1000", n)
	}
	_, err = client.Read(make([]byte, 2000))
	kit.Must(t, err)
	if n := unread(); n != 0 {
		t.Errorf("%d bytes are unread after all were read", n)
	}
}
