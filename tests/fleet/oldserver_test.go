package fleet_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// oldServer is as much of nats-server 2.10 as a client needs to learn that it is too old:
// its JetStream tells no API level. It serves until the end of the test.
func oldServer(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serveOld(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait() // the clients are closed
	})
	return "nats://" + l.Addr().String()
}

// serveOld serves one connection until the client closes it.
func serveOld(conn net.Conn) {
	defer conn.Close()
	fmt.Fprint(conn, `INFO {"server_id":"OLD","version":"2.10.29","proto":1,"headers":true,"max_payload":1048576,"jetstream":true}`+"\r\n")
	inbox := ""
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 0: // an empty body
		case words[0] == "PING":
			fmt.Fprint(conn, "PONG\r\n")
		case words[0] == "SUB":
			inbox = words[len(words)-1]
		case words[0] == "PUB" && words[1] == "$JS.API.INFO":
			const account = `{"type":"io.nats.jetstream.api.v1.account_info_response","api":{"total":1,"errors":0}}`
			fmt.Fprintf(conn, "MSG %s %s %d\r\n%s\r\n", words[2], inbox, len(account), account)
		}
	}
}
