package rule

import (
	"errors"
	"strings"
)

// Normalise brings the path of a request, which comes without its query, into the form in which rules compare it (RFC 3986
// 6.2.2): without dot segments, and percent-encoded bytes decoded. "%2F" stays, since it is no separator, and so does
// "%25", so that no two paths fall together; their digits become upper case. A path with a percent sign that begins no
// percent-encoded byte, or with an encoded NUL, has no such form.
func Normalise(path string) (string, error) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	kept := segments[:0]
	for i, raw := range segments {
		s, err := decode(raw)
		if err != nil {
			return "", err
		}
		if s == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		if s != "." && s != ".." {
			kept = append(kept, s)
		} else if i == len(segments)-1 {
			kept = append(kept, "") // what is left ends with a slash
		}
	}
	return "/" + strings.Join(kept, "/"), nil
}

// decode replaces percent-encoded bytes of a segment.
func decode(s string) (string, error) {
	var b strings.Builder
	for {
		plain, _, found := strings.Cut(s, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), nil
		}
		s = s[len(plain):]
		if len(s) < 3 || !isHex(s[1]) || !isHex(s[2]) {
			return "", errors.New("holds a percent sign that begins no percent-encoded byte")
		}
		switch c := hexValue(s[1])<<4 | hexValue(s[2]); c {
		case 0: // RFC 3986 7.3
			return "", errors.New("holds an encoded NUL, with which every request is refused")
		case '/', '%':
			b.WriteString(strings.ToUpper(s[:3]))
		default:
			b.WriteByte(c)
		}
		s = s[3:]
	}
}
