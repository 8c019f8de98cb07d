package otlp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"collector:4317":              "collector:4317 TLS",
		"collector":                   "collector:4317 TLS",
		"http://collector:4317":       "collector:4317",
		"http://collector":            "collector:4317",
		"https://collector:443/":      "collector:443 TLS",
		"[::1]:4317":                  "[::1]:4317 TLS",
		"http://[::1]:4317":           "[::1]:4317",
		"":                            `endpoint "" is not HOST:PORT`,
		":4317":                       "is not HOST:PORT",
		"collector:0":                 "is not HOST:PORT",
		"collector:port":              "is not HOST:PORT",
		"collector/v1/logs":           "is not HOST:PORT",
		"grpc://collector:4317":       `has the scheme "grpc": want http, https or none`,
		"http://collector/v1/logs":    "OTLP over gRPC has no path",
		"https://u:secret@collector/": `"https://u:xxxxx@collector/" is more than HOST:PORT`,
		"https://collector?q":         "is more than HOST:PORT",
	} {
		target, secure, err := otlp.ParseEndpoint(endpoint, false)
		got := target
		if secure {
			got += " TLS"
		}
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q: got %s, want %s", endpoint, got, want)
		}
	}
	if target, secure, err := otlp.ParseEndpoint("collector:4317", true); err != nil || secure || target != "collector:4317" {
		t.Errorf("without TLS: %s, %t, %v", target, secure, err)
	}
	if _, secure, err := otlp.ParseEndpoint("https://collector", true); err != nil || !secure {
		t.Errorf("https counts more than Insecure: %t, %v", secure, err)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDialErrors(t *testing.T) {
	for want, o := range map[string]otlp.DialOptions{
		"HeadersFile: open /does/not/exist":           {HeadersFile: "/does/not/exist"},
		"headers: line 2 is not NAME=VALUE":           {HeadersFile: write(t, "headers", "# a token\nsecret")},
		"bad: line 1 is not NAME=VALUE":               {HeadersFile: write(t, "bad", "a b=c")},
		"reserved: line 1 is not NAME=VALUE":          {HeadersFile: write(t, "reserved", "grpc-timeout=1")},
		"Certificate: open /does/not/exist":           {Certificate: "/does/not/exist"},
		"empty has no certificate":                    {Certificate: write(t, "empty", "")},
		"ClientCertificate and ClientKey need each o": {ClientKey: "/does/not/exist"},
		"ClientCertificate: open /does/not/exist":     {ClientCertificate: "/does/not/exist", ClientKey: "/does/not/exist"},
		`Compression is "zstd": want gzip or none`:    {Compression: "zstd"},
		"ClientCertificate need an endpoint with TLS": {ClientCertificate: "c", ClientKey: "k", Insecure: true},
	} {
		if _, err := otlp.Dial("localhost:4317", o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// headerReceiver keeps the header authorization of each request.
type headerReceiver struct {
	collogsv1.UnimplementedLogsServiceServer

	got chan []string
}

func (r *headerReceiver) Export(ctx context.Context, _ *collogsv1.ExportLogsServiceRequest) (*collogsv1.ExportLogsServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	r.got <- append(md["authorization"], md["user-agent"]...)
	return &collogsv1.ExportLogsServiceResponse{}, nil
}

// listen serves a receiver on loopback and returns its port.
func listen(t *testing.T, r collogsv1.LogsServiceServer, o ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(o...)
	collogsv1.RegisterLogsServiceServer(s, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() { s.Stop(); <-done })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func send(t *testing.T, endpoint string, o otlp.DialOptions) error {
	t.Helper()
	conn, err := otlp.Dial(endpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = collogsv1.NewLogsServiceClient(conn).Export(t.Context(), &collogsv1.ExportLogsServiceRequest{}, grpc.WaitForReady(false))
	return err
}

func TestHeadersAreReadForEachRequest(t *testing.T) {
	r := &headerReceiver{got: make(chan []string, 1)}
	port := listen(t, r)
	file := write(t, "headers", "# of today\n\nAuthorization=Bearer abc=\n")
	o := otlp.DialOptions{HeadersFile: file, UserAgent: "test/1"}
	conn, err := otlp.Dial("http://127.0.0.1:"+port, o)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := collogsv1.NewLogsServiceClient(conn)
	for _, want := range []string{"Bearer abc=", "Bearer def"} {
		if err := os.WriteFile(file, []byte("authorization="+want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Export(t.Context(), &collogsv1.ExportLogsServiceRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-r.got; got[0] != want || !strings.HasPrefix(got[1], "test/1 ") {
			t.Errorf("headers %q, want %q and the user agent", got, want)
		}
	}
	// While the file is replaced, requests fail with an error that is retried.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Export(t.Context(), &collogsv1.ExportLogsServiceRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without the file: %v, want Unavailable", err)
	}
}

// encodings is a stats handler that keeps the compression of each request.
type encodings chan string

func (encodings) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (encodings) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (encodings) HandleConn(context.Context, stats.ConnStats)                       {}
func (e encodings) HandleRPC(_ context.Context, s stats.RPCStats) {
	if header, ok := s.(*stats.InHeader); ok {
		e <- header.Compression
	}
}

func TestCompression(t *testing.T) {
	got := make(encodings, 1)
	port := listen(t, &headerReceiver{got: make(chan []string, 10)}, grpc.StatsHandler(got))
	for option, want := range map[string]string{"": "", "none": "", "gzip": "gzip"} {
		if err := send(t, "http://127.0.0.1:"+port, otlp.DialOptions{Compression: option}); err != nil {
			t.Fatal(err)
		}
		if encoding := <-got; encoding != want {
			t.Errorf("compression %q sends %q, want %q", option, encoding, want)
		}
	}
}

func TestTLS(t *testing.T) {
	cert, key := kit.SelfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(pair.Leaf)
	port := listen(t, &headerReceiver{got: make(chan []string, 10)}, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))
	mutual := otlp.DialOptions{Certificate: cert, ClientCertificate: cert, ClientKey: key}
	for name, tc := range map[string]struct {
		endpoint string
		options  otlp.DialOptions
		want     codes.Code
	}{
		"mutual":                        {"127.0.0.1:" + port, mutual, codes.OK},
		"mutual, URL":                   {"https://127.0.0.1:" + port, mutual, codes.OK},
		"without certificate":           {"127.0.0.1:" + port, otlp.DialOptions{Certificate: cert}, codes.Unavailable},
		"certificate of nobody we know": {"127.0.0.1:" + port, otlp.DialOptions{ClientCertificate: cert, ClientKey: key}, codes.Unavailable},
		"without TLS":                   {"http://127.0.0.1:" + port, otlp.DialOptions{}, codes.Unavailable},
	} {
		if err := send(t, tc.endpoint, tc.options); status.Code(err) != tc.want {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
