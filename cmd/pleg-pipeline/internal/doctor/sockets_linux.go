package doctor

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
)

// UnixSockets returns the connected unix sockets of this network namespace, for [Options].
func UnixSockets() ([]Socket, error) {
	const connected = 1 // TCP_ESTABLISHED
	all, err := netlink.UnixSocketDiagInfo()
	if err != nil {
		return nil, fmt.Errorf("read the unix sockets: %w", err)
	}
	var sockets []Socket
	for _, s := range all {
		if s.DiagMsg.State == connected && s.Name != nil && s.Peer != nil && s.Queue != nil {
			path, _, _ := strings.Cut(*s.Name, "\x00") // what follows is padding
			sockets = append(sockets, Socket{Path: path, Inode: s.DiagMsg.INode, Peer: *s.Peer, Unread: int(s.Queue.WQueue)})
		}
	}
	return sockets, nil
}
