package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const ftpConfig = `card: emu
emu: {client: eth1, server: eth2}
ports:
  client: {addresses: [198.18.0.1/24, "2001:db8::1/64"]}
  server: {addresses: [198.18.1.1/24, "2001:db8:1::1/64"]}
services:
  - {name: ftp, listen: [198.18.0.180:21], mode: MODE, protocol: tcp, module: ftp, default: app}
  - {name: ftp6, listen: ["[2001:db8::80]:21"], mode: MODE, protocol: tcp, module: ftp, default: app6}
  - {name: cut, listen: [198.18.0.180:2121], mode: MODE, protocol: tcp, module: ftp, default: cut}
  - {name: tftp, listen: [198.18.0.180:69], mode: MODE, protocol: udp, module: tftp, default: tftp}
groups:
  - {name: app, scheduler: rr, servers: [{address: 198.18.1.11:21}]}
  - {name: app6, scheduler: rr, servers: [{address: "[2001:db8:1::11]:21"}]}
  - {name: cut, scheduler: rr, servers: [{address: 198.18.1.12:2121}]}
  - {name: tftp, scheduler: rr, servers: [{address: 198.18.1.13:69}]}
`

const vsftpdConfig = `listen=NO
listen_ipv6=NO
background=NO
anonymous_enable=YES
no_anon_password=YES
anon_root=ROOT
write_enable=YES
anon_upload_enable=YES
anon_umask=022
connect_from_port_20=YES
seccomp_sandbox=NO
isolate_network=NO
ftpd_banner=here
`

// TestFTP has lftp and curl move files from and to vsftpd through the card, with connections that either end opens, of both
// families, with nat and fullnat; own ends cut lines at every byte.
func TestFTP(t *testing.T) {
	need(t, "vsftpd", "vsftpd")
	need(t, "lftp", "lftp")
	need(t, "curl", "curl")
	if os.Getuid() != 0 || os.Getenv("NETLAB_ENTERED") != "" {
		t.Skip("needs root: vsftpd becomes another user")
	}
	for _, mode := range []string{"nat", "fullnat"} {
		t.Run(mode, func(t *testing.T) {
			p := between(t)
			root := t.TempDir()
			must(t, os.Chmod(root, 0o755))
			must(t, os.Mkdir(filepath.Join(root, "in"), 0o777))
			must(t, os.Chmod(filepath.Join(root, "in"), 0o777))
			must(t, os.MkdirAll("/var/run/vsftpd/empty", 0o755))
			file := make([]byte, 1_000_000)
			rand.NewChaCha8([32]byte{6}).Read(file)
			must(t, os.WriteFile(filepath.Join(root, "file"), file, 0o644))
			base := strings.ReplaceAll(vsftpdConfig, "ROOT", root)
			p.runServer("198.18.1.11:21", "vsftpd", p.write("four.conf", strings.Replace(base, "listen=NO\n", "listen=YES\nlisten_address=198.18.1.11\n", 1)))
			p.runServer("[2001:db8:1::11]:21", "vsftpd", p.write("six.conf", strings.Replace(base, "listen_ipv6=NO\n", "listen_ipv6=YES\nlisten_address6=2001:db8:1::11\n", 1)))
			p.serveCut("198.18.1.12:2121")
			p.serveTFTP("198.18.1.13:69", file[:70_000])
			p.begin(strings.ReplaceAll(ftpConfig, "MODE", mode))
			sum := sha256.Sum256(file)
			for _, host := range []string{"198.18.0.180", "[2001:db8::80]"} {
				four := !strings.HasPrefix(host, "[")
				for _, how := range []struct {
					name string
					four bool // has no words for IPv6
					curl []string
					lftp string
				}{
					{"EPSV", false, nil, "set ftp:prefer-epsv yes"},
					{"PASV", true, []string{"--disable-epsv", "--no-ftp-skip-pasv-ip"}, "set ftp:prefer-epsv no; set ftp:fix-pasv-address no"},
					{"EPRT", false, []string{"--ftp-port", "-"}, "set ftp:passive-mode no"},
					{"PORT", true, []string{"--ftp-port", "-", "--disable-eprt"}, "set ftp:passive-mode no"},
				} {
					if how.four && !four {
						continue
					}
					t.Run(host+" "+how.name, func(t *testing.T) {
						for i, what := range []string{"curl", "lftp"} {
							name := fmt.Sprintf("%s-%s-%d", how.name, what, i)
							from, to := p.write("upload", string(file)), filepath.Join(p.dir, "download")
							os.Remove(to)
							if what == "curl" {
								args := append([]string{"-sS", "-g", "--max-time", "30"}, how.curl...)
								p.in(p.client, t, "curl", append(args, "-o", to, "ftp://"+host+"/file")...)
								p.in(p.client, t, "curl", append(args, "-T", from, "ftp://"+host+"/in/"+name)...)
							} else {
								settings := "set net:timeout 20; set net:max-retries 1; set ftp:ssl-allow no; " + how.lftp
								p.in(p.client, t, "lftp", "--norc", "-c", settings+"; open ftp://"+host+"; get /file -o "+to+"; put "+from+" -o /in/"+name)
							}
							for _, at := range []string{to, filepath.Join(root, "in", name)} {
								got, err := os.ReadFile(at)
								must(t, err)
								if sha256.Sum256(got) != sum {
									t.Errorf("%s: %s has %d bytes with another hash", what, at, len(got))
								}
							}
							os.Remove(filepath.Join(root, "in", name))
						}
					})
				}
			}
			t.Run("cut", p.testCutFTP)
			t.Run("bounce", p.testBounce)
			t.Run("encrypted", p.testEncrypted)
			t.Run("TFTP", func(t *testing.T) { p.testTFTP(t, file[:70_000]) })
			if mode == "fullnat" && p.number("runtime.actions.module_altered") == 0 || p.number("runtime.actions.module_opened") == 0 || p.number("runtime.actions.module_foreign") == 0 {
				t.Error("the modules' counters tell nothing")
			}
		})
	}
}

const cutContent = "whole\n"

// serveCut is a server of FTP that sends its replies in two segments: SITE CUT n says where.
func (p *product) serveCut(address string) {
	p.t.Helper()
	ln, err := p.servers.Listen("tcp", address)
	must(p.t, err)
	p.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.talkCut(c)
		}
	}()
}

func (p *product) talkCut(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	cut := 0
	say := func(line string) { writeCut(c, line+"\r\n", cut) }
	say("220 here")
	host, _, _ := net.SplitHostPort(c.LocalAddr().String())
	var data net.Listener
	var active string
	defer func() {
		if data != nil {
			data.Close()
		}
	}()
	for in := bufio.NewScanner(c); in.Scan(); {
		verb, rest, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "CUT":
			fmt.Sscan(rest, &cut)
			say("200 cut")
		case "PASV":
			if data != nil {
				data.Close()
			}
			var err error
			if data, err = p.servers.Listen("tcp", host+":0"); err != nil {
				return
			}
			port := data.Addr().(*net.TCPAddr).Port
			say(fmt.Sprintf("227 Entering Passive Mode (%s,%d,%d).", strings.ReplaceAll(host, ".", ","), port>>8, port&255))
		case "AUTH":
			say("234 from here on " + rest)
			_, _ = io.Copy(c, io.MultiReader(c))
			return
		case "PORT":
			n := strings.Split(rest, ",")
			if len(n) != 6 {
				say("501 what")
				continue
			}
			var hi, lo int
			fmt.Sscan(n[4]+" "+n[5], &hi, &lo)
			active = fmt.Sprintf("%s:%d", strings.Join(n[:4], "."), hi<<8|lo)
			say("200 yes")
		case "RETR":
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			var d net.Conn
			var err error
			if active != "" {
				err = p.servers.Do(func() (err error) { // from the address where the client is
					from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
					d, err = from.DialContext(ctx, "tcp", active)
					return err
				})
			} else {
				d, err = data.Accept()
			}
			cancel()
			if err != nil {
				say("425 " + err.Error())
				continue
			}
			active = ""
			_, _ = io.WriteString(d, cutContent)
			d.Close()
			say("226 done")
		default:
			say("500 unknown")
		}
	}
}

// writeCut writes a line in two segments.
func writeCut(c net.Conn, line string, cut int) {
	if cut = min(cut, len(line)-1); cut > 0 {
		_, _ = io.WriteString(c, line[:cut])
		awaitSent(c)
	}
	_, _ = io.WriteString(c, line[cut:])
}

// awaitSent waits until all that was written is in segments of its own: what is written next cannot join them.
func awaitSent(c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	for end, left := time.Now().Add(5*time.Second), 1; left != 0 && time.Now().Before(end); runtime.Gosched() {
		if raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) }) != nil || err != nil {
			return
		}
	}
}

// ftpClient is a client of FTP that cuts its lines.
type ftpClient struct {
	t *testing.T
	net.Conn
	in  *bufio.Reader
	cut int
}

func (p *product) ftp(t *testing.T, address string) *ftpClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := p.client.Dial(ctx, "tcp", address)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(2*time.Minute)))
	f := &ftpClient{t, c, bufio.NewReader(c), 0}
	f.reply("220")
	return f
}

func (f *ftpClient) reply(code string) string {
	f.t.Helper()
	line, err := f.in.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, code) {
		f.t.Fatalf("reply %q, %v; want %s", line, err, code)
	}
	return line
}

func (f *ftpClient) do(code, line string) string {
	f.t.Helper()
	writeCut(f.Conn, line+"\r\n", f.cut)
	return f.reply(code)
}

// testCutFTP moves a file as often as a line has bytes, each time cut at another.
func (p *product) testCutFTP(t *testing.T) {
	f := p.ftp(t, "198.18.0.180:2121")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for cut := 1; cut < 53; cut++ {
		f.cut = 0
		f.do("200", fmt.Sprint("CUT ", cut))
		line := f.do("227", "PASV")
		var n [6]int
		if _, err := fmt.Sscanf(line, "227 Entering Passive Mode (%d,%d,%d,%d,%d,%d).", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil || n[0] != 198 || n[1] != 18 || n[2] != 0 || n[3] != 180 {
			t.Fatalf("cut at %d: %q, %v", cut, line, err)
		}
		d, err := p.client.Dial(ctx, "tcp", fmt.Sprintf("198.18.0.180:%d", n[4]<<8|n[5]))
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		writeCut(f.Conn, "RETR x\r\n", 0)
		got, err := io.ReadAll(d)
		d.Close()
		if err != nil || string(got) != cutContent {
			t.Fatalf("cut at %d: %q, %v", cut, got, err)
		}
		f.reply("226")
	}
	f.cut = 0
	f.do("200", "CUT 0")
	for cut := 1; cut < 28; cut++ {
		ln, err := p.client.Listen("tcp", "198.18.0.10:0")
		must(t, err)
		port := ln.Addr().(*net.TCPAddr).Port
		f.cut = cut
		f.do("200", fmt.Sprintf("PORT 198,18,0,10,%d,%d", port>>8, port&255))
		f.cut = 0
		writeCut(f.Conn, "RETR x\r\n", 0)
		must(t, ln.(*net.TCPListener).SetDeadline(time.Now().Add(10*time.Second)))
		d, err := ln.Accept()
		if err != nil {
			t.Fatalf("PORT cut at %d: %v", cut, err)
		}
		if from, _ := netip.ParseAddrPort(d.RemoteAddr().String()); from.Addr() != netip.MustParseAddr("198.18.0.180") {
			t.Errorf("PORT cut at %d: the connection comes from %v", cut, from)
		}
		got, err := io.ReadAll(d)
		d.Close()
		ln.Close()
		if err != nil || string(got) != cutContent {
			t.Fatalf("PORT cut at %d: %q, %v", cut, got, err)
		}
		f.reply("226")
	}
}

// testBounce: nobody has a server connect to somebody else.
func (p *product) testBounce(t *testing.T) {
	f := p.ftp(t, "198.18.0.180:2121")
	f.do("501", "PORT 198,18,0,11,195,80")
	f.do("501", "PORT 198,18,0,10,0,25")
	f.do("500", "NOOP") // and the numbers of both ends are right still
}

// testEncrypted: behind AUTH TLS nothing is read, held back or altered, and the log says so.
func (p *product) testEncrypted(t *testing.T) {
	f := p.ftp(t, "198.18.0.180:2121")
	f.do("234", "AUTH TLS")
	for _, s := range []string{"PORT 198,18,0,99,1,1\r\n", "PO", "\x16\x03\x01 no line", "227 Entering Passive Mode (198,18,1,12,1,1)\r\n"} {
		_, err := io.WriteString(f, s)
		must(t, err)
		got := make([]byte, len(s))
		if _, err := io.ReadFull(f.in, got); err != nil || string(got) != s {
			t.Fatalf("%q comes back as %q, %v", s, got, err)
		}
	}
	if !strings.Contains(p.log.String(), "control connection is encrypted now") {
		t.Error("the log says nothing about it")
	}
}

// serveTFTP answers requests with a file, each from a port of its own.
func (p *product) serveTFTP(address string, file []byte) {
	p.t.Helper()
	var pc net.PacketConn
	must(p.t, p.servers.Do(func() (err error) { pc, err = net.ListenPacket("udp", address); return err }))
	p.t.Cleanup(func() { pc.Close() })
	host, _, _ := net.SplitHostPort(address)
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if n < 4 || b[1] != 1 {
				continue
			}
			var one net.PacketConn
			if p.servers.Do(func() (err error) { one, err = net.ListenPacket("udp", host+":0"); return err }) != nil {
				return
			}
			go sendTFTP(one, from, file)
		}
	}()
}

// sendTFTP sends a file in blocks of 512 bytes, each again until it is acknowledged.
func sendTFTP(c net.PacketConn, to net.Addr, file []byte) {
	defer c.Close()
	ack := make([]byte, 100)
	for block := 1; ; block++ {
		part := file[min(512*(block-1), len(file)):min(512*block, len(file))]
		msg := append([]byte{0, 3, byte(block >> 8), byte(block)}, part...)
		for try := 0; ; try++ {
			if try == 10 {
				return
			}
			_, _ = c.WriteTo(msg, to)
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if n, _, err := c.ReadFrom(ack); err == nil && n == 4 && ack[1] == 4 && int(ack[2])<<8|int(ack[3]) == block {
				break
			}
		}
		if len(part) < 512 {
			return
		}
	}
}

// testTFTP fetches a file.
func (p *product) testTFTP(t *testing.T, file []byte) {
	for i := range 3 {
		var c net.PacketConn
		must(t, p.client.Do(func() (err error) { c, err = net.ListenPacket("udp", "198.18.0.10:0"); return err }))
		defer c.Close()
		to := net.Addr(&net.UDPAddr{IP: net.ParseIP("198.18.0.180"), Port: 69})
		request := []byte("\x00\x01file\x00octet\x00")
		_, err := c.WriteTo(request, to)
		must(t, err)
		var got []byte
		b := make([]byte, 1500)
		for last := 0; ; {
			must(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
			n, from, err := c.ReadFrom(b)
			if err != nil || n < 4 || b[1] != 3 {
				t.Fatalf("transfer %d: after %d bytes: %v", i, len(got), err)
			}
			if a, _ := netip.ParseAddrPort(from.String()); a.Addr() != netip.MustParseAddr("198.18.0.180") {
				t.Fatalf("data comes from %v", from)
			}
			if block := int(b[2])<<8 | int(b[3]); block == last+1 {
				got, last = append(got, b[4:n]...), block
			}
			_, err = c.WriteTo([]byte{0, 4, b[2], b[3]}, from)
			must(t, err)
			if n < 516 {
				break
			}
		}
		if !bytes.Equal(got, file) {
			t.Errorf("transfer %d: %d bytes, not those of the file", i, len(got))
		}
	}
}
