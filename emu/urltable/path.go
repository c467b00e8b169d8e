package urltable

// setPath splits off the query and normalises the path into r.Path. Most paths are in normal form already and stay where they are.
func (r *Request) setPath(raw []byte) Verdict {
	depth, plain := 0, true
	n := len(raw)
	for i, b := range raw {
		if b == '?' {
			n = i
			r.Query = raw[i+1:]
			break
		}
		switch b {
		case '/':
			depth++
		case '.':
			plain = plain && i > 0 && raw[i-1] != '/'
		case '%':
			plain = false
		}
	}
	raw = raw[:n]
	if plain && n > 0 {
		if depth > MaxSegments {
			return TooDeep
		}
		r.Path = raw
		return OK
	}
	return r.rewrite(raw)
}

// rewrite decodes raw and removes its dot segments (RFC 3986 5.2.4) in r.path. starts holds where the segments begin
// that are kept so far.
func (r *Request) rewrite(raw []byte) Verdict {
	if len(raw) >= len(r.path) {
		return Malformed
	}
	var starts [MaxSegments]uint16
	depth, n := 0, 0
	r.path[0] = '/'
	n = 1
	for i := min(1, len(raw)); ; {
		if depth == MaxSegments {
			return TooDeep
		}
		start := n
		for i < len(raw) && raw[i] != '/' {
			b := raw[i]
			if b != '%' {
				r.path[n] = b
				n++
				i++
				continue
			}
			if !escape(raw[i:]) {
				return Malformed
			}
			b = unhex(raw[i+1])<<4 | unhex(raw[i+2])
			i += 3
			if b == 0 { // RFC 3986 7.3
				return Malformed
			}
			if b == '/' || b == '%' {
				n += copy(r.path[n:], "%2F")
				if b == '%' {
					r.path[n-1] = '5'
				}
				continue
			}
			r.path[n] = b
			n++
		}
		last := i == len(raw)
		switch string(r.path[start:n]) {
		case ".":
			n = start
		case "..":
			n = start
			if depth > 0 {
				depth--
				n = int(starts[depth])
			}
		default:
			if !last {
				starts[depth] = uint16(start)
				depth++
				r.path[n] = '/'
				n++
			}
		}
		if last {
			r.Path = r.path[:n]
			return OK
		}
		i++ // over the slash
	}
}
