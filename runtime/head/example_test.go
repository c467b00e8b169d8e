package head_test

import (
	"fmt"
	"net/netip"
	"strings"

	"splicenic/runtime/config"
	"splicenic/runtime/head"
)

// Example finds the end of a head, reads it, and makes what a server gets in its place.
func Example() {
	arrived := []byte("POST /photos/../x?y HTTP/1.1\r\nHost: B.example:80\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nbody")
	end, _ := head.End(arrived, 0)
	h, err := head.Parse(arrived[:end])
	if err != nil {
		fmt.Println(err) // the status of the answer is in it
		return
	}
	fmt.Println(h.Method, h.Host, h.Path, h.Query)
	a := head.Alter{
		Forwarded: config.XForwardedFor, Close: true,
		Client: netip.MustParseAddrPort("192.0.2.10:40001"), VIP: netip.MustParseAddrPort("198.51.100.80:80"),
	}
	stream, err := a.Apply(nil, arrived[:end], h)
	if err != nil {
		fmt.Println(err)
		return
	}
	n, _ := h.Boundary()
	stream = append(stream, arrived[end:n]...) // nothing behind the only request
	fmt.Println(strings.ReplaceAll(string(stream), "\r", ""))
	// Output:
	// POST b.example /x y
	// POST /photos/../x?y HTTP/1.1
	// Host: B.example:80
	// Connection: close
	// Content-Length: 4
	// X-Forwarded-For: 192.0.2.10
	// X-Forwarded-Proto: http
	// X-Forwarded-Host: B.example:80
	//
	// body
}
