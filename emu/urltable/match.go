package urltable

import "splicenic/regs"

const nodeWords = regs.UrlNodeWords

// maxLabel is the longest label a node has room for.
const maxLabel = 4 * regs.UrlNodeLabelCount

// Match walks the automaton at root over the request's host and path and returns the index of the rule that takes it.
// A rule for this very host comes before one for every host; then an exact path before the longest prefix.
func Match(nodes []uint32, root uint32, r *Request) (rule uint32, ok bool) {
	top := node(nodes, root)
	if top == nil {
		return 0, false
	}
	if paths := findHost(nodes, top, r.Host); paths != nil {
		if rule, ok = findPath(nodes, paths, r.Path); ok {
			return rule, true
		}
	}
	if regs.UrlNodeControlPath(top[regs.UrlNodeControl]) == 0 {
		return 0, false
	}
	return findPath(nodes, node(nodes, top[regs.UrlNodePathRoot]), r.Path)
}

// findHost returns the root of the path automaton of exactly this host, nil where there is none.
func findHost(nodes, n []uint32, host []byte) []uint32 {
	for i := 0; n != nil; {
		label := labelBytes(n)
		if label > len(host)-i {
			return nil
		}
		for k := range label {
			if fold[host[i+k]] != labelByte(n, k) {
				return nil
			}
		}
		i += label
		if i == len(host) {
			if regs.UrlNodeControlPath(n[regs.UrlNodeControl]) == 0 {
				return nil
			}
			return node(nodes, n[regs.UrlNodePathRoot])
		}
		n = child(nodes, n, fold[host[i]])
	}
	return nil
}

// findPath returns the rule of an exact path, else of the longest prefix that ends where a segment does.
func findPath(nodes, n []uint32, path []byte) (rule uint32, ok bool) {
	for i := 0; n != nil; {
		label := labelBytes(n)
		if label > len(path)-i {
			break
		}
		for k := range label {
			if path[i+k] != labelByte(n, k) {
				return rule, ok
			}
		}
		i += label
		control := n[regs.UrlNodeControl]
		if regs.UrlNodeControlPrefix(control) != 0 && (i == len(path) || path[i] == '/' || i > 0 && path[i-1] == '/') {
			rule, ok = n[regs.UrlNodePrefixRule], true
		}
		if i == len(path) {
			if regs.UrlNodeControlExact(control) != 0 {
				rule, ok = n[regs.UrlNodeExactRule], true
			}
			break
		}
		n = child(nodes, n, path[i])
	}
	return rule, ok
}

// node returns a node of the image, nil where the image does not reach.
func node(nodes []uint32, index uint32) []uint32 {
	i := uint64(index) * nodeWords
	if i+nodeWords > uint64(len(nodes)) {
		return nil
	}
	return nodes[i : i+nodeWords : i+nodeWords]
}

// child finds the child whose label begins with b. A child without a label would let a walk go round in circles and is
// none.
func child(nodes, n []uint32, b byte) []uint32 {
	first := n[regs.UrlNodeFirstChild]
	lo, hi := uint32(0), regs.UrlNodeControlChildren(n[regs.UrlNodeControl])
	for lo < hi {
		mid := (lo + hi) / 2
		c := node(nodes, first+mid)
		if c == nil {
			return nil
		}
		switch got := labelByte(c, 0); {
		case got == b:
			if labelBytes(c) == 0 {
				return nil
			}
			return c
		case got < b:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return nil
}

func labelBytes(n []uint32) int {
	return min(int(regs.UrlNodeControlLabelBytes(n[regs.UrlNodeControl])), maxLabel)
}

func labelByte(n []uint32, k int) byte {
	return byte(n[regs.UrlNodeLabel+k/4] >> (k % 4 * 8))
}
