package ipvs

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// checkers are the checks of keepalived with those of a configuration that stand for them. Where less is checked than
// before, that is said.
var checkers = map[string]struct {
	tcp, udp string // the check of a TCP and of a UDP service
	less     string // what is not checked any more; empty: nothing
}{
	"TCP_CHECK":  {"tcp", "tcp", ""},
	"HTTP_GET":   {"http", "http", ""},
	"SSL_GET":    {"tcp", "tcp", "checks do not speak TLS: that the port takes connections is all that is checked"},
	"SMTP_CHECK": {"tcp", "tcp", "checks do not speak SMTP: that the port takes connections is all that is checked"},
	"DNS_CHECK":  {"udp", "udp", "checks do not speak DNS: that the port is not unreachable is all that is checked"},
	"UDP_CHECK":  {"udp", "udp", ""},
	"PING_CHECK": {"ping", "ping", ""},
	"MISC_CHECK": {"tcp", "ping", "no program is run: %s is checked in its place"},
	"FILE_CHECK": {"tcp", "ping", "no file is watched: %s is checked in its place"},
	"BFD_CHECK":  {"ping", "ping", "BFD is not spoken: %s is checked in its place"},
}

// The bounds of a configuration's checks.
const (
	minTime   = 10 // milliseconds
	maxTime   = 24 * 60 * 60 * 1000
	maxRow    = 100
	maxRanges = 8
	maxText   = 512 // bytes
)

// check reads a checker's block.
func (k *keepalived) check(s *statement, r *server, own checking, v *virtual) *Check {
	kind := checkers[s.key()]
	c := &Check{Type: kind.tcp}
	if len(v.listen) > 0 && v.listen[0].Protocol == "udp" {
		c.Type = kind.udp
	}
	key := r.key + "." + s.key()
	if kind.less != "" {
		text := kind.less
		if strings.Contains(text, "%s") {
			text = fmt.Sprintf(text, map[string]string{"tcp": "that the port takes connections", "ping": "that the server answers pings"}[c.Type])
		}
		k.leave(s.at, key, "%s", text)
	}
	var urls []*statement
	retry := func(s *statement) { own.retry = int(k.number(s, 0, 1000)) }
	timeout := func(s *statement) { own.timeout = k.seconds(s) }
	nothing := func(*statement) {}
	f := fields{
		"connect_port":    func(s *statement) { c.Port = uint16(k.number(s, 1, 65535)) },
		"connect_timeout": timeout, "misc_timeout": timeout,
		"retry": retry, "nb_get_retry": retry,
		"delay_loop": func(s *statement) { own.interval = k.seconds(s) },
		"alpha":      func(s *statement) { own.alpha = k.boolean(s) },
	}
	switch s.key() {
	case "HTTP_GET":
		f["url"] = func(s *statement) { urls = append(urls, s) }
		f["virtualhost"] = func(s *statement) { own.host = s.arg(0) }
	case "SSL_GET", "MISC_CHECK", "SMTP_CHECK", "DNS_CHECK", "FILE_CHECK", "BFD_CHECK": // said of the whole already
		for _, name := range []string{"url", "virtualhost", "enable_sni", "misc_path", "misc_dynamic", "user", "helo_name", "host", "type", "name", "track_file"} {
			f[name] = nothing
		}
	case "UDP_CHECK":
		f["payload"] = func(s *statement) { c.Send = k.payload(s, key) }
	}
	k.block(s.block, key, f)
	if c.Type == "http" {
		k.urls(urls, c, own.host, key, s.at)
	}
	if c.Type == "ping" {
		c.Port = 0
	}
	c.Interval, c.Timeout, c.Down = k.bounded(own.interval, s.at, key), k.bounded(own.timeout, s.at, key), own.alpha
	if own.retry >= 0 {
		c.Fall = min(uint32(own.retry)+1, maxRow) // the first failure and each retry
	}
	return c
}

// bounded cuts a time to what a check's may be.
func (k *keepalived) bounded(ms uint32, at place, key string) uint32 {
	if ms == 0 || ms >= minTime && ms <= maxTime {
		return ms
	}
	cut := min(max(ms, minTime), maxTime)
	k.leave(at, key, "%s is cut to %s", millis(ms), millis(cut))
	return cut
}

// urls reads what HTTP_GET asks for; a configuration asks for one thing.
func (k *keepalived) urls(urls []*statement, c *Check, host, key string, at place) {
	c.Path, c.Host, c.Status = "/", host, []string{"200-299"}
	if len(urls) == 0 {
		k.leave(at, key, "names no url: / is asked for")
		urls = []*statement{{at: at}}
	}
	for _, u := range urls[1:] {
		k.leave(u.at, key+".url", "one url is checked, the first")
	}
	k.block(urls[0].block, key+".url", fields{
		"path": func(s *statement) {
			if c.Path = s.arg(0); !strings.HasPrefix(c.Path, "/") || strings.ContainsAny(c.Path, " \t\r\n") || len(c.Path) > maxText || strings.ContainsFunc(c.Path, func(r rune) bool { return r >= 0x7f }) {
				k.fail(s.at, key+".url.path", "%q is no path of at most %d characters of ASCII", clip(c.Path), maxText)
			}
		},
		"virtualhost": func(s *statement) { c.Host = s.arg(0) },
		"status_code": func(s *statement) { c.Status = k.status(s, key) },
	})
	if len(c.Host) > maxText {
		k.fail(urls[0].at, key+".virtualhost", "has %d characters; at most %d are taken", len(c.Host), maxText)
	}
	for _, r := range c.Host {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:[]", r) {
			k.fail(urls[0].at, key+".virtualhost", "%q is no name of a host", clip(c.Host))
			break
		}
	}
}

// status reads "200" or "200-299 404".
func (k *keepalived) status(s *statement, key string) (list []string) {
	for _, w := range s.words[1:] {
		low, high, isRange := strings.Cut(w, "-")
		a, err := strconv.ParseUint(low, 10, 16)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(high, 10, 16)
		}
		if err != nil || a < 100 || b > 599 || a > b {
			k.fail(s.at, key+".status_code", "%q is no status or range of statuses from 100 to 599", clip(w))
			return nil
		}
		list = append(list, w)
	}
	if len(list) > maxRanges {
		k.leave(s.at, key+".status_code", "has %d ranges; the first %d count", len(list), maxRanges)
		list = list[:maxRanges]
	}
	return list
}

// payload reads what UDP_CHECK sends, bytes in hexadecimal; a configuration has texts.
func (k *keepalived) payload(s *statement, key string) string {
	b, err := hex.DecodeString(strings.Join(s.words[1:], ""))
	if err != nil {
		k.fail(s.at, key+".payload", "%q is no list of bytes in hexadecimal", clip(strings.Join(s.words[1:], " ")))
		return ""
	}
	if len(b) > maxText {
		k.leave(s.at, key+".payload", "has %d bytes; the first %d are sent", len(b), maxText)
		b = b[:maxText]
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c >= 0x7f {
			k.leave(s.at, key+".payload", "is no text: an empty datagram is sent in its place")
			return ""
		}
	}
	return string(b)
}
