package health

import (
	"bytes"
	"errors"
	"strconv"
)

// Bounds of what an HTTP check reads. A body is not read at all.
const (
	maxHead    = 16 << 10 // of all heads of an answer together
	maxInterim = 8        // 1xx answers before the one that counts
)

// The reasons why an HTTP answer is none.
var (
	errNotHTTP  = errors.New("not an HTTP answer")
	errStatus   = errors.New("malformed status line")
	errHeader   = errors.New("malformed header line")
	errHead     = errors.New("head longer than 16 KiB")
	errInterim  = errors.New("too many interim answers")
	errTooEarly = errors.New("closed within the head")
)

// readAnswer reads the status of an HTTP/1 answer of which b came so far; 0: not yet.
func readAnswer(b []byte) (status int, err error) {
	for range maxInterim {
		status, rest, err := readHead(b)
		if err != nil || status == 0 || status >= 200 || status == 101 {
			return status, err
		}
		b = rest
	}
	return 0, errInterim
}

// readHead reads one head; rest is what follows it. Lines may end without CR, as RFC 9112, 2.2 lets a reader allow.
func readHead(b []byte) (status int, rest []byte, err error) {
	const version = "HTTP/1."
	if n := min(len(b), len(version)); string(b[:n]) != version[:n] {
		return 0, nil, errNotHTTP
	}
	line, rest, whole := bytes.Cut(b, []byte("\n"))
	if !whole {
		return 0, nil, nil
	}
	if status = readStatus(bytes.TrimSuffix(line, []byte("\r"))); status == 0 {
		return 0, nil, errStatus
	}
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			return 0, nil, nil
		}
		line, rest = bytes.TrimSuffix(line, []byte("\r")), after
		if len(line) == 0 {
			return status, rest, nil
		}
		if bytes.ContainsAny(line, "\x00\r") || line[0] != ' ' && line[0] != '\t' && bytes.IndexByte(line, ':') < 1 {
			return 0, nil, errHeader
		}
	}
}

// readStatus reads a status line, "HTTP/1.1 200 OK"; 0: it is malformed.
func readStatus(line []byte) int {
	const before = len("HTTP/1.1 ")
	if len(line) < before+3 || line[before-2] < '0' || line[before-2] > '9' || line[before-1] != ' ' || len(line) > before+3 && line[before+3] != ' ' {
		return 0
	}
	digits := string(line[before : before+3])
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n < 100 {
		return 0
	}
	return int(n)
}
