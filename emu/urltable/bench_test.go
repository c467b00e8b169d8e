package urltable_test

import (
	"fmt"
	"strings"
	"testing"

	"splicenic/emu/urltable"
	"splicenic/runtime/rule"
)

// compile makes the image of one service.
func compile(t testing.TB, routes []rule.Route) *rule.Image {
	t.Helper()
	im, err := rule.Compile([]rule.Service{{Name: "s", Routes: routes}}, rule.Indexes{Size: 1 << 17}, 1<<19, nil)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func BenchmarkHead(b *testing.B) {
	head := []byte("GET /photos/2024/summer/beach.jpg?size=large HTTP/1.1\r\nHost: img.example\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nCookie: " + strings.Repeat("x", 300) + "\r\n\r\n")
	var r urltable.Request
	b.ReportAllocs()
	b.SetBytes(int64(len(head)))
	for b.Loop() {
		end, _ := urltable.FindEnd(head, 0)
		if urltable.ParseHead(head[:end], &r) != urltable.OK {
			b.Fatal("not ok")
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var routes []rule.Route
			for i := range n {
				routes = append(routes, rule.Route{Match: rule.Match{Host: fmt.Sprintf("host-%d.example", i%97), Path: rule.Path{Kind: rule.PrefixPath, Text: fmt.Sprintf("/section-%d/photos", i)}}})
			}
			im := compile(b, routes)
			t := &urltable.Tables{Nodes: im.Nodes, Rules: im.Rules}
			var r urltable.Request
			head := fmt.Sprintf("GET /section-%d/photos/beach.jpg HTTP/1.1\r\nHost: host-%d.example\r\n\r\n", n-1, (n-1)%97)
			if urltable.ParseHead([]byte(head), &r) != urltable.OK {
				b.Fatal("not ok")
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, v := urltable.Match(t, im.Roots[0], &r); v != urltable.Matched {
					b.Fatal("no match")
				}
			}
		})
	}
}

func TestNoAllocation(t *testing.T) {
	im := compile(t, []rule.Route{{Match: rule.Match{Host: "img.example", Path: rule.Path{Kind: rule.PrefixPath, Text: "/photos"}}}})
	tables := &urltable.Tables{Nodes: im.Nodes, Rules: im.Rules}
	head := []byte("GET /x/../photos/%61 HTTP/1.1\r\nHost: IMG.example\r\n\r\n")
	r := new(urltable.Request)
	if n := testing.AllocsPerRun(100, func() {
		end, _ := urltable.FindEnd(head, 0)
		urltable.ParseHead(head[:end], r)
		if _, v := urltable.Match(tables, im.Roots[0], r); v != urltable.Matched {
			t.Error("no match")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a request, want none", n)
	}
}
