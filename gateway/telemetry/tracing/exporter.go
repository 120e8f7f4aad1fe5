package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"voxgate/tools"
)

const (
	// exportTimeout bounds an export with its retries. It is the standard's default:
	// https://opentelemetry.io/docs/specs/otel/protocol/exporter/. The environment may replace it.
	exportTimeout = 10 * time.Second

	// exportPause is the pause before spans are sent again to a busy collector. The collector is busy if it answers
	// 429, 502, 503 or 504. If its answer has a Retry-After, that is used instead.
	exportPause = time.Second

	// maxRetryAfter caps a collector's Retry-After, in seconds. A larger value could overflow time.Duration, and the
	// exporter would not pause at all.
	maxRetryAfter = 24 * 60 * 60
)

// exporter sends spans to a collector by OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/#otlphttp). It replaces
// OpenTelemetry's own exporter, whose errors show the URL, which may contain a token.
type exporter struct {
	url     string
	headers http.Header
	zip     bool
	timeout time.Duration
	client  *http.Client
}

// exporterSetting returns OTEL_EXPORTER_OTLP_TRACES_NAME, or else OTEL_EXPORTER_OTLP_NAME.
func exporterSetting(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// newExporter returns an exporter configured by the standard environment variables.
func newExporter() (*exporter, error) {
	e := &exporter{timeout: exportTimeout, headers: http.Header{"Content-Type": {"application/x-protobuf"}}}
	e.url = os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if e.url == "" {
		e.url = strings.TrimSuffix(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/") + "/v1/traces"
	}
	if u, err := url.Parse(e.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the endpoint must be http://host/… or https://host/…") // the URL is not shown, because it may hold a token
	}
	for pair := range strings.SplitSeq(exporterSetting("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		if value, err := url.PathUnescape(strings.TrimSpace(value)); ok && err == nil {
			e.headers.Set(strings.TrimSpace(name), value)
		}
	}
	if e.zip = exporterSetting("COMPRESSION") == "gzip"; e.zip {
		e.headers.Set("Content-Encoding", "gzip")
	}
	if ms, err := strconv.Atoi(exporterSetting("TIMEOUT")); err == nil && ms > 0 {
		e.timeout = time.Duration(ms) * time.Millisecond
	}
	transport := tools.NewTransport()
	if file := exporterSetting("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", file)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	e.client = &http.Client{Transport: transport, CheckRedirect: tools.RefuseRedirect}
	return e, nil
}

// ExportSpans implements trace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	body := encodeRequest(spans)
	if e.zip {
		var small bytes.Buffer
		w := gzip.NewWriter(&small)
		_, _ = w.Write(body) // never fails: w writes to memory
		_ = w.Close()
		body = small.Bytes()
	}
	for {
		wait, err := e.post(ctx, body)
		if err == nil || wait == 0 {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// post sends a request. If it fails, retryAfter is the time before a retry; 0 means that a retry is useless.
func (e *exporter) post(ctx context.Context, body []byte) (retryAfter time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header = e.headers.Clone()
	answer, err := e.client.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return 0, wrapped.Err // without the outer error, which shows the URL
	} else if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		retryAfter = exportPause
		if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && s > 0 {
			retryAfter = time.Duration(min(s, maxRetryAfter)) * time.Second
		}
	}
	if answer.StatusCode >= 300 {
		return retryAfter, fmt.Errorf("the collector answers %s", answer.Status)
	}
	return 0, nil
}

// Shutdown implements trace.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
