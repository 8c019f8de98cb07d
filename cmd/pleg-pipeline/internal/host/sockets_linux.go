package host

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dump asks for all connected unix sockets (unix_diag_req in linux/unix_diag.h). The list that
// package netlink makes ends at the first socket that is no stream.
type dump struct{}

const connected = 1 // TCP_ESTABLISHED

// Len implements [nl.NetlinkRequestData].
func (dump) Len() int { return 24 }

// Serialize implements [nl.NetlinkRequestData].
func (d dump) Serialize() []byte {
	b := make([]byte, d.Len())
	b[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(b[4:], 1<<connected)
	binary.NativeEndian.PutUint32(b[12:], 1<<netlink.UNIX_DIAG_NAME|1<<netlink.UNIX_DIAG_PEER|1<<netlink.UNIX_DIAG_RQLEN)
	return b
}

// Sockets returns the connected unix sockets of this network namespace, for [Options].
func Sockets() ([]Socket, error) {
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	request.AddData(dump{})
	var sockets []Socket
	err := request.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) bool {
		const header = 16 // unix_diag_msg
		if len(msg) < header {
			return true
		}
		s := Socket{Inode: binary.NativeEndian.Uint32(msg[4:])}
		attributes, _ := nl.ParseRouteAttr(msg[header:]) // nil if the attributes are malformed
		for _, a := range attributes {
			switch {
			case a.Attr.Type == netlink.UNIX_DIAG_NAME:
				s.Path, _, _ = strings.Cut(string(a.Value), "\x00") // the kernel may end it so
			case a.Attr.Type == netlink.UNIX_DIAG_PEER && len(a.Value) == 4:
				s.Peer = binary.NativeEndian.Uint32(a.Value)
			case a.Attr.Type == netlink.UNIX_DIAG_RQLEN && len(a.Value) == 8:
				s.Unread = int(binary.NativeEndian.Uint32(a.Value[4:]))
			}
		}
		if s.Peer != 0 {
			sockets = append(sockets, s)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read the unix sockets: %w", err)
	}
	return sockets, nil
}
