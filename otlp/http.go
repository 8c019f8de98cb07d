package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	protobufType = "application/x-protobuf"
	// maxAnswer bounds what is read of an answer, and maxMessage of a text in it.
	maxAnswer, maxMessage = 64 << 10, 256
)

// httpConn makes the one call of OTLP as a request of HTTP.
type httpConn struct {
	to      string
	options DialOptions
	client  *http.Client
}

func newHTTPConn(to *url.URL, o DialOptions, transport http.RoundTripper) *httpConn {
	return &httpConn{to.String(), o, &http.Client{
		Transport: transport,
		// A redirect would send the headers and the events elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// newTransport returns one without HTTP/2: the time-out of a request then ends its
// connection, so that none through a dead network lasts.
func newTransport(config *tls.Config) *http.Transport {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, TLSHandshakeTimeout: exportTimeout,
		DisableCompression: true, IdleConnTimeout: time.Minute, Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	return transport
}

// Invoke implements [grpc.ClientConnInterface]. Its error is an [httpError] if the receiver
// has answered.
func (c *httpConn) Invoke(ctx context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	request, err := c.newRequest(ctx, args.(proto.Message)) //nolint:forcetypeassert // as generated
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	contentType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode/100 != 2 {
		return newHTTPError(response, contentType, body)
	}
	if err := unmarshal(contentType, body, reply.(proto.Message)); err != nil { //nolint:forcetypeassert // as generated
		return &httpError{status: response.Status, message: fmt.Sprintf("the answer is not of OTLP: %v", err)}
	}
	return nil
}

// NewStream implements [grpc.ClientConnInterface].
func (*httpConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("OTLP over HTTP has no streams")
}

// Close implements [io.Closer].
func (c *httpConn) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

func (c *httpConn) newRequest(ctx context.Context, message proto.Message) (*http.Request, error) {
	headers, err := readHeaders(c.options.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("read headers: %w", err)
	}
	body, err := proto.Marshal(message)
	if err != nil {
		return nil, err
	}
	zipped := c.options.Compression == "gzip"
	if zipped {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(body)
		if err := errors.Join(err, w.Close()); err != nil {
			return nil, err
		}
		body = b.Bytes()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", protobufType)
	request.Header.Set("User-Agent", c.options.UserAgent)
	if zipped {
		request.Header.Set("Content-Encoding", "gzip")
	}
	return request, nil
}

// unmarshal decodes an answer. One without a body, such as Loki's, says no more than its
// status.
func unmarshal(contentType string, body []byte, into proto.Message) error {
	switch {
	case len(body) == 0:
		return nil
	case contentType == protobufType:
		return proto.Unmarshal(body, into)
	case contentType == "application/json":
		return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, into)
	}
	return fmt.Errorf("its type is %q", contentType)
}

// httpError is the answer of a receiver that has not accepted a request.
type httpError struct {
	status, message string
	// retry is true if the request may be repeated, wait for how long the receiver asks to
	// wait before.
	retry bool
	wait  time.Duration
}

// Error implements error.
func (e *httpError) Error() string { return strings.TrimSuffix(e.status+": "+e.message, ": ") }

// newHTTPError returns the error for an answer. The OTLP specification (1.7, "Failures")
// lists the status codes after which a request may be repeated.
func newHTTPError(r *http.Response, contentType string, body []byte) *httpError {
	e := &httpError{status: r.Status}
	switch r.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.retry = true
		e.wait = retryAfter(r.Header.Get("Retry-After"))
	}
	var s spb.Status
	if e.message = string(body); unmarshal(contentType, body, &s) == nil && len(body) > 0 {
		e.message = s.GetMessage()
	}
	e.message = text(e.message[:min(len(e.message), maxMessage)])
	return e
}

// retryAfter returns the time that a header asks for; 0 if it asks for none.
func retryAfter(header string) time.Duration {
	if at, err := http.ParseTime(header); err == nil {
		return time.Until(at)
	}
	seconds, _ := strconv.ParseInt(header, 10, 32)
	return time.Duration(seconds) * time.Second
}
