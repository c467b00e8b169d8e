package acceptance

import (
	"fmt"
	"strings"
	"testing"
)

// testProxy has nginx and haproxy read the PROXY header: of what comes behind it nothing is lost.
func (p *product) testProxy(t *testing.T) {
	port := 30000 // of the client
	for _, tt := range []struct {
		name string
		args []string
		want string // %d: the client's port
	}{
		{"nginx", []string{vipHost + ":82/"}, "behind-proxy 198.18.0.10 %d 198.18.0.80 82 forwarded=[] connection=[]\n"},
		{"nginx over IPv6", []string{"http://[2001:db8::80]:82/"}, "behind-proxy 2001:db8::10 %d 2001:db8::80 82 forwarded=[] connection=[]\n"},
		{"nginx, with everything else that is inserted", []string{vipHost + ":83/"},
			"behind-proxy 198.18.0.10 %d 198.18.0.80 83 forwarded=[for=\"198.18.0.10:%[1]d\";by=\"198.18.0.80:83\";host=\"198.18.0.80:83\";proto=http] connection=[close]\n"},
		{"haproxy", []string{vipHost + ":82/haproxy"}, "haproxy 198.18.0.10 %d 198.18.0.80 82 id=ID authority=[]\n"},
		{"haproxy behind TLS", []string{"--cacert", p.dir + "/cert.pem", "--connect-to", "::198.18.0.80:445", "https://www.b.example/"}, "haproxy 198.18.0.10 %d 198.18.0.80 445 id=ID authority=[www.b.example]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port++
			got := p.in(p.client, t, "curl", append([]string{"-sS", "-g", "--max-time", "20", "--local-port", fmt.Sprint(port)}, tt.args...)...)
			want := fmt.Sprintf(strings.Replace(tt.want, "ID", "16", 1), port)
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// testForwarded looks at the fields that nginx gets.
func (p *product) testForwarded(t *testing.T) {
	port := 31000 // of the client
	const xff, fwd = "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1"
	for _, tt := range []struct{ name, url, field, want string }{
		{"none there", vipHost + ":90/", "", "xff=[198.18.0.10] forwarded=[]"},
		{"append", vipHost + ":90/", xff, "xff=[192.0.2.1, 198.18.0.10] forwarded=[]"},
		{"replace", vipHost + ":91/", xff, "xff=[198.18.0.10] forwarded=[]"},
		{"replace where there is none", vipHost + ":91/", "", "xff=[198.18.0.10] forwarded=[]"},
		{"refuse where there is none", vipHost + ":92/", "", "xff=[198.18.0.10] forwarded=[]"},
		{"refuse", vipHost + ":92/", xff, "400 Bad Request"},
		{"forwarded", vipHost + ":93/", "", `forwarded=[for="198.18.0.10:PORT";by="198.18.0.80:93";host="198.18.0.80:93";proto=http]`},
		{"forwarded, append", vipHost + ":93/", fwd, `forwarded=[for=192.0.2.1, for="198.18.0.10:PORT";by="198.18.0.80:93";host="198.18.0.80:93";proto=http]`},
		{"forwarded, IPv6", "http://[2001:db8::80]:93/", "", `forwarded=[for="[2001:db8::10]:PORT";by="[2001:db8::80]:93";host="[2001:db8::80]:93";proto=http]`},
		{"none", vipHost + "/", xff, "xff=[192.0.2.1] forwarded=[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port++
			args := []string{"-sS", "-g", "--max-time", "20", "--local-port", fmt.Sprint(port), tt.url}
			if tt.field != "" {
				args = append(args, "-H", tt.field)
			}
			want := strings.Replace(tt.want, "PORT", fmt.Sprint(port), 1)
			if got := p.in(p.client, t, "curl", args...); !strings.Contains(got, want) {
				t.Errorf("got %q, want %q in it", got, want)
			}
		})
	}
}
