package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

// A server that cannot be used is reported in one clear line, however often it is tried.
func TestUnusableServer(t *testing.T) {
	t.Parallel()
	cert, key := kit.SelfSigned(t)
	other, _ := kit.SelfSigned(t)
	serverTLS := func(verify string) string {
		return fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: %s }", cert, key, cert, verify)
	}
	tests := []struct {
		name   string
		url    string
		config string
		create *jetstream.StreamConfig
		says   string
		// user is the user of the URL, and options are the options of the connection.
		user    string
		options []nats.Option
	}{
		{name: "unreachable", url: "nats://127.0.0.1:1", says: "not connected to nats://127.0.0.1:1: no server answers"},
		{name: "unauthorized", config: "authorization { token: secret }", says: ": nats: Authorization Violation"},
		{
			name: "no permission", config: "authorization { users: [{user: a, password: x, permissions: {publish: [nothing]}}] }", user: "a:x@",
			says: `nats: permissions violation: Permissions Violation for Publish to \"$JS.API.INFO\"`,
		},
		{name: "unknown certificate", config: serverTLS("false"), options: []nats.Option{nats.RootCAs(other)}, says: "x509: certificate signed by unknown authority"},
		{name: "no certificate", config: serverTLS("true"), options: []nats.Option{nats.RootCAs(cert)}, says: "tls: certificate required"},
		{name: "too old", url: startBinary(t, natsd.OldBinary, "").URL, says: "nats-server 2.10.29 is too old: want 2.12 or newer"},
		{name: "other subjects", config: " ", create: &jetstream.StreamConfig{Name: streams[0], Subjects: []string{"other.>"}}, says: `stream pleg-v2-test_example: it has the subjects [\"other.>\"]: want pleg.v2.test_example.>`},
		{name: "other retention", config: " ", create: &jetstream.StreamConfig{Name: streams[0], Subjects: []string{"pleg.v2.test_example.>"}, Retention: jetstream.InterestPolicy}, says: "stream pleg-v2-test_example: it has the retention Interest: want limits"},
		{name: "no batches", config: " ", create: &jetstream.StreamConfig{Name: streams[0], Subjects: []string{"pleg.v2.test_example.>"}}, says: "stream pleg-v2-test_example: it does not allow atomic batches: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := tt.url
			if tt.config != "" {
				url = newRelay(t, startServer(t, tt.config).URL).url // at the address in the certificate
			}
			url = strings.Replace(url, "nats://", "nats://"+tt.user, 1)
			if tt.create != nil {
				if _, err := jetStream(t, connect(t, url)).CreateStream(t.Context(), *tt.create); err != nil {
					t.Fatal(err)
				}
			}
			node := newNode(t, "node-a", agentOptions{pods: 3, history: 100})
			log := &kit.Log{}
			publish(t, fleet.PublisherOptions{
				Conn: connect(t, url, tt.options...), Source: node, Node: "node-a", Logger: log.Logger(),
			})
			await(t, log, tt.says)
			time.Sleep(time.Second)
			log.RequireLines(t, 1, tt.says)
		})
	}
}

// While there is no connection, the status and the log say so, and not that the buffer of nats.go is
// full. Once the connection is back, the status contains no error, although there is nothing to
// publish.
func TestStatusWithoutAConnection(t *testing.T) {
	t.Parallel()
	s, node, log := startServer(t, ""), newNode(t, "node-a", agentOptions{}), &kit.Log{}
	p, _ := publish(t, fleet.PublisherOptions{Conn: connect(t, s.URL), Source: node, Node: "node-a", Logger: log.Logger()})
	node.Step()
	until(t, func() error {
		states, err := fleet.OpenStates(t.Context(), jetStream(t, connect(t, s.URL)), cluster, "")
		if err != nil {
			return err
		}
		for _, err := range states.Pods(t.Context(), nil, nil) {
			return err
		}
		return errors.New("no pod is published")
	})
	for _, want := range []string{"<nil>", "not connected to nats://", "<nil>", "not connected to nats://", "<nil>"} {
		until(t, func() error {
			if got := fmt.Sprint(p.Status().Err); !strings.Contains(got, want) {
				return fmt.Errorf("the status is %s, want %s", got, want)
			}
			return nil
		})
		if want == "<nil>" {
			s.Kill()
			node.Step()
		} else {
			kit.Must(t, s.Start(t.Context()))
		}
	}
	if strings.Contains(log.String(), "buffer") {
		t.Errorf("the log blames a buffer:\n%s", log)
	}
}
