package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"splicenic/runtime/admin"
	"splicenic/runtime/config"
)

// maxAnswer bounds an answer: a dump of every register and CAM word fits several times.
const maxAnswer = 1 << 30

// A Client asks one card, through its runtime or directly, in the requests of /v1.
type Client struct {
	Where string // socket or card, for messages

	http  http.Client
	close func() error
}

// dialSocket returns a client of the runtime behind a socket, or nil where no runtime listens there.
func dialSocket(ctx context.Context, path string) (*Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		return d.DialContext(ctx, "unix", path)
	}
	conn, err := dial(ctx, "", "")
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		f := Explain("ask the runtime", err)
		f.Where = path
		return nil, f
	}
	_ = conn.Close()
	return &Client{Where: path, http: http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
}

// handled answers requests by a handler in this process.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	a := answer{status: http.StatusOK, header: http.Header{}}
	h.ServeHTTP(&a, r)
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: a.header, Body: io.NopCloser(&a.body), Request: r}, nil
}

// answer keeps what a handler writes.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// Close lets the card go, where this process opened it.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	if c.close == nil {
		return nil
	}
	return c.close()
}

// Get asks for a document and decodes it into v; nil: not decoded. It returns the document as it came.
func (c *Client) Get(ctx context.Context, path string, query url.Values, v any) (json.RawMessage, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil, v)
}

// Send sends a document with PUT or POST and decodes the answer into v.
func (c *Client) Send(ctx context.Context, method, path string, body, v any) (json.RawMessage, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", path, err)
	}
	return c.do(ctx, method, path, bytes.NewReader(b), v)
}

// A runtime that works answers a question in milliseconds; what changes the card may wait for it.
const (
	getPatience  = 10 * time.Second
	sendPatience = 2 * time.Minute
)

// errSilent: the runtime took a request and did not answer it.
var errSilent = errors.New("no answer in time")

func (c *Client) do(ctx context.Context, method, path string, body io.Reader, v any) (json.RawMessage, error) {
	patience := getPatience
	if method != http.MethodGet {
		patience = sendPatience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w, which is %v", errSilent, patience))
	defer cancel()
	doc, err := c.ask(ctx, method, path, body, v)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return nil, &Failure{words: words{What: "ask the runtime for " + path, Where: c.Where, Why: context.Cause(ctx).Error(),
			Do: "look whether the runtime is stopped (ps shows T: kill -CONT it) or overloaded; its log tells", Exit: ExitFailed}}
	}
	return doc, err
}

func (c *Client) ask(ctx context.Context, method, path string, body io.Reader, v any) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://card/v1/"+path, body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.failure("ask the runtime for "+path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, c.failure("read the answer to "+path, err)
	}
	if res.StatusCode/100 != 2 {
		return nil, c.refusal(path, res.Status, b)
	}
	if v != nil {
		if err := json.Unmarshal(b, v); err != nil {
			return nil, c.failure("decode the answer to "+path, err)
		}
	}
	return b, nil
}

func (c *Client) failure(what string, err error) error {
	f := Explain(what, err)
	if f.Where == "" {
		f.Where = c.Where
	}
	return f
}

// refusal reads the error document of an answer.
func (c *Client) refusal(path, status string, b []byte) error {
	var doc struct {
		Error    admin.Error     `json:"error"`
		Problems config.Problems `json:"problems"`
	}
	if err := json.Unmarshal(b, &doc); err != nil || doc.Error.What == "" {
		return &Failure{words: words{What: "ask the runtime for " + path, Where: c.Where, Why: status, Exit: ExitFailed}}
	}
	if doc.Error.Exit == ExitOK {
		doc.Error.Exit = ExitFailed
	}
	return &Failure{doc.Error, doc.Problems}
}
