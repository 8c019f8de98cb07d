package httpserver

import "net"

// Limits of connections.
const (
	MaxConnections = maxConnections
	MaxSpare       = maxSpare
)

// Limit is the handler that limits requests.
var Limit = limit

// NewGate is a listener that limits connections.
func NewGate(l net.Listener) net.Listener { return newGate(l) }

// NewLobby is a listener that keeps silent connections back.
var NewLobby = newLobby

// HasUnread reports whether something waits on a connection of a gate.
func HasUnread(c net.Conn) bool { return c.(*gatedConn).hasUnread() }

// Limits of password checks.
const (
	MaxChecks     = maxChecks
	MaxHostChecks = maxHostChecks
)

// BeginCheck returns a function that begins the check of a wrong password of a host, and
// returns how to end it.
func BeginCheck() func(host string) (end func(), err error) {
	p := newPasswords()
	return func(host string) (func(), error) {
		_, err := p.begin([32]byte{}, host)
		return func() { p.end([32]byte{}, host, false) }, err
	}
}

// NewAnswers returns get of new answers.
func NewAnswers() func(question string, body func() []byte) []byte { return newAnswers().get }
