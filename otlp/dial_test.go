package otlp_test

import (
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestEndpoints(t *testing.T) {
	overHTTP, overGRPC, plain := otlp.DialOptions{Protocol: otlp.ProtocolHTTP}, otlp.DialOptions{Protocol: otlp.ProtocolGRPC}, otlp.DialOptions{Insecure: true}
	for _, tc := range []struct {
		endpoint string
		o        otlp.DialOptions
		want     string
	}{
		{"collector:4317", otlp.DialOptions{}, "grpc https://collector:4317"},
		{"collector", otlp.DialOptions{}, "grpc https://collector:4317"},
		{"collector", plain, "grpc http://collector:4317"},
		{"http://collector", overGRPC, "grpc http://collector:4317"},
		{"https://collector:443/", plain, "grpc https://collector:443/"}, // the scheme counts more
		{"[::1]:4317", otlp.DialOptions{}, "grpc https://[::1]:4317"},
		{"http://loki:3100/otlp/v1/logs", otlp.DialOptions{}, "http http://loki:3100/otlp/v1/logs"},
		{"https://collector/v1/logs", overHTTP, "http https://collector:443/v1/logs"},
		{"http://collector:4318", overHTTP, "http http://collector:4318/v1/logs"},
		{"http://collector/", overHTTP, "http http://collector:80/v1/logs"},
		{"collector", overHTTP, "http https://collector:4318/v1/logs"},
		{"", otlp.DialOptions{}, `endpoint "" is not HOST:PORT`},
		{":4317", otlp.DialOptions{}, "is not HOST:PORT"},
		{"collector:0", otlp.DialOptions{}, "is not HOST:PORT"},
		{"collector:70000", overHTTP, "is not HOST:PORT"},
		{"collector:port", otlp.DialOptions{}, "is not HOST:PORT"},
		{"collector/v1/logs", otlp.DialOptions{}, "is not HOST:PORT"},
		{"grpc://collector:4317", otlp.DialOptions{}, `has the scheme "grpc": want http, https or none`},
		{"http://collector/v1/logs", overGRPC, "Protocol is grpc, which has no path"},
		{"http://collector", otlp.DialOptions{Protocol: "http/json"}, `Protocol is "http/json": want grpc or http/protobuf`},
		{"https://u:secret@collector/", otlp.DialOptions{}, `"https://u:xxxxx@collector/" is more than HOST:PORT`},
		{"https://collector/v1/logs?q", otlp.DialOptions{}, "is more than HOST:PORT"},
	} {
		got, err := otlp.ParseEndpoint(tc.endpoint, tc.o)
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%q: got %s, want %s", tc.endpoint, got, tc.want)
		}
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	kit.Must(t, os.WriteFile(path, []byte(text), 0o600))
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

// listen serves a receiver of both protocols on loopback, with TLS if there is a config. got
// has the headers of each request.
func listen(t *testing.T, config *tls.Config) (server *httptest.Server, got chan http.Header) {
	t.Helper()
	got = make(chan http.Header, 10)
	r := new(receiver)
	overGRPC := grpc.NewServer()
	collogsv1.RegisterLogsServiceServer(overGRPC, r)
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		got <- q.Header
		if strings.HasPrefix(q.Header.Get("Content-Type"), "application/grpc") {
			overGRPC.ServeHTTP(w, q)
			return
		}
		if q.Header.Get("Content-Encoding") == "gzip" {
			q.Body, _ = gzip.NewReader(q.Body)
		}
		r.ServeHTTP(w, q)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	if server.TLS = config; config != nil {
		server.EnableHTTP2 = true
		server.StartTLS()
		return server, got
	}
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	return server, got
}

// send sends a request without records on a new connection.
func send(t *testing.T, endpoint string, o otlp.DialOptions) error {
	t.Helper()
	conn, err := otlp.Dial(endpoint, o)
	kit.Must(t, err)
	defer conn.Close()
	return export(t, conn)
}

func export(t *testing.T, conn otlp.Conn) error {
	t.Helper()
	request := &collogsv1.ExportLogsServiceRequest{ResourceLogs: []*logsv1.ResourceLogs{{ScopeLogs: []*logsv1.ScopeLogs{{}}}}}
	_, err := collogsv1.NewLogsServiceClient(conn).Export(t.Context(), request)
	return err
}

func TestHeadersAreReadForEachRequest(t *testing.T) {
	for compression, encoding := range map[string]string{"": "", "none": "", "gzip": "gzip"} {
		for _, protocol := range protocols {
			server, got := listen(t, nil)
			file := write(t, "headers", "# of today\n\nAuthorization=Bearer abc=\n")
			conn, err := otlp.Dial(server.URL, otlp.DialOptions{Protocol: protocol, HeadersFile: file, Compression: compression, UserAgent: "test/1"})
			kit.Must(t, err)
			defer conn.Close()
			for _, want := range []string{"Bearer abc=", "Bearer def"} {
				kit.Must(t, os.WriteFile(file, []byte("authorization="+want+"\n"), 0o600))
				kit.Must(t, export(t, conn))
				h := <-got
				if h.Get("Authorization") != want || !strings.HasPrefix(h.Get("User-Agent"), "test/1") || h.Get("Grpc-Encoding")+h.Get("Content-Encoding") != encoding {
					t.Errorf("%s: headers %q, want %q, the user agent and the encoding %q", protocol, h, want, encoding)
				}
			}
			// While the file is replaced, requests fail with an error that is retried.
			kit.Must(t, os.Remove(file))
			if err := export(t, conn); err == nil || otlp.IsPermanent(err) {
				t.Errorf("%s: without the file: %v, want an error to retry", protocol, err)
			}
		}
	}
}

func TestTLS(t *testing.T) {
	cert, key := kit.SelfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Must(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(pair.Leaf)
	server, _ := listen(t, &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})
	address := strings.TrimPrefix(server.URL, "https://")
	mutual := otlp.DialOptions{Certificate: cert, ClientCertificate: cert, ClientKey: key}
	for _, protocol := range protocols {
		for name, tc := range map[string]struct {
			endpoint string
			options  otlp.DialOptions
			works    bool
		}{
			"mutual":                        {address, mutual, true},
			"mutual, URL":                   {server.URL, mutual, true},
			"without certificate":           {address, otlp.DialOptions{Certificate: cert}, false},
			"certificate of nobody we know": {address, otlp.DialOptions{ClientCertificate: cert, ClientKey: key}, false},
			"without TLS":                   {"http://" + address, otlp.DialOptions{}, false},
		} {
			tc.options.Protocol = protocol
			if err := send(t, tc.endpoint, tc.options); tc.works != (err == nil) {
				t.Errorf("%s, %s: %v, want that it works: %t", protocol, name, err, tc.works)
			}
		}
	}
}

// What a receiver may answer over HTTP.
func TestHTTPAnswers(t *testing.T) {
	const json, html = "application/json", "text/html; charset=utf-8"
	for name, tc := range map[string]struct {
		code              int
		contentType, body string
		want              string // of the error
		permanent         bool
		wait              time.Duration // at most, and more than half of it
	}{
		"no content, as Loki":       {code: 204},
		"JSON":                      {code: 200, contentType: json, body: `{"partialSuccess":{}}`},
		"a page":                    {code: 200, contentType: html, body: "<html>", want: `its type is "text/html"`, permanent: true},
		"no protobuf":               {code: 200, contentType: "application/x-protobuf", body: "\xff", want: "not of OTLP", permanent: true},
		"too many":                  {code: 429, want: "429 Too Many Requests", wait: 7 * time.Second},
		"bad gateway":               {code: 502, contentType: html, body: strings.Repeat("no", 1000), want: "502 Bad Gateway: nono"},
		"gateway time-out":          {code: 504, want: "504"},
		"internal error":            {code: 500, contentType: json, body: `{"code":13,"message":"no space"}`, want: "500 Internal Server Error: no space", permanent: true},
		"unauthorized":              {code: 401, want: "401", permanent: true},
		"too large":                 {code: 413, want: "413", permanent: true},
		"a redirect, not followed":  {code: 307, want: "307", permanent: true},
		"unavailable until a time":  {code: 503, want: "503", wait: 60 * time.Second},
		"unavailable for too long":  {code: 503, want: "503", wait: 5 * time.Minute},
		"unavailable, no good time": {code: 503, want: "503"},
	} {
		t.Run(name, func(t *testing.T) {
			retryAfter := map[string]string{
				"too many": "7", "unavailable for too long": "999999999", "unavailable, no good time": "soon",
				"unavailable until a time": time.Now().Add(time.Minute).UTC().Format(http.TimeFormat),
			}[name]
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				w.Header().Set("Retry-After", retryAfter)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer server.Close()
			err := send(t, server.URL, otlp.DialOptions{Protocol: otlp.ProtocolHTTP})
			if tc.want == "" && err == nil {
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || otlp.IsPermanent(err) != tc.permanent || len(err.Error()) > 400 {
				t.Errorf("got %v, permanent: %t; want %q, %t", err, otlp.IsPermanent(err), tc.want, tc.permanent)
			}
			if got := otlp.AskedFor(err); got > tc.wait || got < tc.wait/2 {
				t.Errorf("it asks to wait for %v, want %v", got, tc.wait)
			}
		})
	}
}
