package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// serverFlags bound the clients of a daemon.
type serverFlags struct {
	connections, watchers, streams, buffer int
}

func (f *serverFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.connections, "max-connections", server.DefaultMaxConnections, "greatest `NUMBER` of connections to --socket at the same time")
	flags.IntVar(&f.watchers, "max-watchers", server.DefaultMaxWatchers, "greatest `NUMBER` of clients of --socket that follow the events")
	flags.IntVar(&f.streams, "max-event-streams", httpserver.DefaultMaxStreams, "greatest `NUMBER` of clients of /events")
	flags.IntVar(&f.buffer, "client-buffer", server.DefaultBuffer, "`NUMBER` of events that can wait for each of these clients, about 250 bytes\neach; one of --socket may ask for up to 4096")
}

// maxClients is more than this program can serve; a greater number is a mistake.
const maxClients = 100_000

func (f *serverFlags) validate() error {
	within := func(name string, n, most int) error {
		if n < 1 || n > most {
			return fmt.Errorf("--%s must be between 1 and %d, got %d", name, most, n)
		}
		return nil
	}
	return cmp.Or(
		within("max-connections", f.connections, maxClients),
		within("max-watchers", f.watchers, maxClients),
		within("max-event-streams", f.streams, httpserver.MaxStreams),
		within("client-buffer", f.buffer, server.DefaultMaxBuffer),
	)
}

// options are those of the gRPC service.
func (f *serverFlags) options() server.Options {
	return server.Options{MaxConnections: f.connections, MaxWatchers: f.watchers, Buffer: f.buffer}
}
