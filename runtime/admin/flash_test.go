package admin_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"splicenic/bitstream/program"
	"splicenic/emu"
	"splicenic/runtime/admin"
)

// boots remembers what was asked for.
type boots struct {
	asked []admin.BootRequest
	wrong error // of a plan
}

func (b *boots) Ask(q admin.BootRequest) error { b.asked = append(b.asked, q); return nil }
func (b *boots) Plan(context.Context, admin.BootRequest, program.Card) (*program.BootPlan, error) {
	return &program.BootPlan{}, b.wrong
}
func (b *boots) State() admin.BootState { return admin.BootState{State: admin.BootNone} }

// octets asks for bytes of the flash.
func octets(t *testing.T, h http.Handler, offset, length int) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", fmt.Sprintf("/v1/flash/data?offset=%d&length=%d", offset, length), nil))
	if w.Code != 200 || w.Body.Len() != length {
		t.Errorf("read %d bytes at %#x: %d, %d bytes: %.200s", length, offset, w.Code, w.Body.Len(), w.Body)
	}
	return w.Body.Bytes()
}

const (
	sector = 64 << 10
	slot1  = 16 << 20
)

// TestFlashHostile: what cannot be meant is refused in words, and changes nothing.
func TestFlashHostile(t *testing.T) {
	b := &boots{}
	h := admin.BootHandler(admin.Bare(open(t)), b)
	if code, v := ask(t, h, "PUT", "/v1/flash/protect", `{"on": false}`); code != 200 {
		t.Fatalf("%d %v", code, v)
	}
	program := func(at int, p string) (int, any) {
		return ask(t, h, "PUT", fmt.Sprintf("/v1/flash/data?offset=%d", at), p)
	}
	if code, v := program(slot1, strings.Repeat("x", 1000)); code != 200 {
		t.Fatalf("%d %v", code, v)
	}
	places := []int{0, slot1, 64<<20 - sector}
	var before [][]byte
	for _, at := range places {
		before = append(before, octets(t, h, at, sector))
	}
	_, was := ask(t, h, "GET", "/v1/flash", "")
	many := strings.Repeat("[", 100_000)
	for _, tt := range []struct{ method, path, body, why string }{
		{"POST", "flash/erase", ``, "EOF"},
		{"POST", "flash/erase", `{}`, `"offset" is missing`},
		{"POST", "flash/erase", `null`, `"offset" is missing`},
		{"POST", "flash/erase", `{"offset": null}`, `"offset" is missing`},
		{"POST", "flash/erase", `{"OFFSET": 0}`, `"offset" is missing`},
		{"POST", "flash/erase", `[0]`, "cannot unmarshal array"},
		{"POST", "flash/erase", `0`, "cannot unmarshal number"},
		{"POST", "flash/erase", `{"offset": 0`, "unexpected EOF"},
		{"POST", "flash/erase", `{"offset": 0} {"offset": 0}`, "something follows"},
		{"POST", "flash/erase", `{"offset": 0, "length": 9}`, "unknown field"},
		{"POST", "flash/erase", `{"offset": "0"}`, "cannot unmarshal string"},
		{"POST", "flash/erase", `{"offset": -1}`, "cannot unmarshal number -1"},
		{"POST", "flash/erase", `{"offset": 0.5}`, "cannot unmarshal number 0.5"},
		{"POST", "flash/erase", `{"offset": 1e300}`, "cannot unmarshal number 1e300"},
		{"POST", "flash/erase", `{"offset": 4294967296}`, "cannot unmarshal number 4294967296"},
		{"POST", "flash/erase", `{"offset": 1}`, "no sector starts at 0x1"},
		{"POST", "flash/erase", `{"offset": 256}`, "no sector starts at 0x100"},
		{"POST", "flash/erase", `{"offset": 67108864}`, "no sector starts at 0x4000000"},
		{"POST", "flash/erase", `{"offset": 4294901760}`, "no sector starts at 0xffff0000"},
		{"POST", "flash/erase", many, "depth"},
		{"POST", "flash/erase", "\x7fELF\x00\x01", "invalid character"},
		{"PUT", "flash/data", "x", "offset is missing"},
		{"PUT", "flash/data?offset=", "x", "offset is missing"},
		{"PUT", "flash/data?offset=0", "", "no bytes"},
		{"PUT", "flash/data?offset=-1", "x", `offset is "-1"`},
		{"PUT", "flash/data?offset=x", "x", `offset is "x"`},
		{"PUT", "flash/data?offset=4294967296", "x", "a number up to 4294967295"},
		{"PUT", "flash/data?offset=67108864", "x", "not inside a flash of 67108864"},
		{"PUT", "flash/data?offset=67108863", "xx", "2 bytes at 0x3ffffff are not inside"},
		{"PUT", "flash/data?offset=0", strings.Repeat("x", sector+1), "it may have 65536 bytes"},
		{"GET", "flash/data?offset=0&length=65537", "", `length is "65537"`},
		{"GET", "flash/data?offset=0&length=-1", "", `length is "-1"`},
		{"GET", "flash/data?offset=67108863&length=2", "", "not inside"},
		{"GET", "flash/data?offset=0&length=18446744073709551616", "", "length is"},
		{"PUT", "flash/protect", `{}`, `"on" is missing`},
		{"PUT", "flash/protect", `{"on": 1}`, "cannot unmarshal number"},
		{"PUT", "flash/next", `{}`, `"slot" is missing`},
		{"PUT", "flash/next", `{"slot": 3}`, "the card has slots 0 to 2"},
		{"PUT", "flash/next", `{"slot": -1}`, "no slot -1"},
		{"PUT", "flash/next", `{"slot": 9223372036854775808}`, "cannot unmarshal number"},
		{"POST", "boot", `{}`, `"slot" is missing`},
		{"POST", "boot", `{"live": true}`, `"slot" is missing`},
		{"POST", "boot", `{"slot": 1}`, "--live"},
		{"POST", "boot", `{"slot": 3, "live": true}`, "the card has slots 0 to 2"},
		{"POST", "boot", `{"slot": -1, "live": true}`, "no slot -1"},
		{"POST", "boot", `{"slot": 1, "live": true, "drain_ns": -1}`, "drain_ns is -1"},
		{"POST", "boot", `{"slot": 1, "live": true, "drain_ns": 3600000000001}`, "an hour at most"},
		{"POST", "boot", `{"slot": 1, "live": "yes"}`, "cannot unmarshal string"},
		{"POST", "boot", `{"slot": 1, "live": true, "expect": {"name": 1}}`, "cannot unmarshal number"},
		{"POST", "boot", many, "depth"},
		{"POST", "boot/plan", `{}`, `"slot" is missing`},
		{"POST", "boot/plan", `{"slot": "1"}`, "cannot unmarshal string"},
	} {
		code, v := ask(t, h, tt.method, "/v1/"+tt.path, tt.body)
		why, _ := at(v, "error.why").(string)
		where, _ := at(v, "error.where").(string)
		if code < 400 || code > 499 || !strings.Contains(why, tt.why) || !strings.HasPrefix(where, "/v1/"+strings.SplitN(tt.path, "?", 2)[0]) || at(v, "error.do") == "" {
			t.Errorf("%s %s %.60q: %d %v, want %q", tt.method, tt.path, tt.body, code, v, tt.why)
		}
	}
	for i, at := range places {
		if !bytes.Equal(octets(t, h, at, sector), before[i]) {
			t.Errorf("the sector at %#x was changed", at)
		}
	}
	if _, is := ask(t, h, "GET", "/v1/flash", ""); fmt.Sprint(is) != fmt.Sprint(was) {
		t.Errorf("%v\nwas %v", is, was)
	}
	if b.asked != nil {
		t.Errorf("the card is to boot: %+v", b.asked)
	}
	if code, v := ask(t, h, "POST", "/v1/boot", `{"slot": 1, "live": true}`); code != 200 || len(b.asked) != 1 || b.asked[0].Slot != 1 {
		t.Errorf("a boot that is meant: %d %v, %+v", code, v, b.asked)
	}

	// Whoever forgets the write protection is told so.
	ask(t, h, "PUT", "/v1/flash/protect", `{"on": true}`)
	if code, v := ask(t, h, "POST", "/v1/flash/erase", fmt.Sprintf(`{"offset": %d}`, slot1)); code != 409 || at(v, "error.exit") != 6.0 || !strings.Contains(fmt.Sprint(at(v, "error.why")), "write protection") {
		t.Errorf("erase what is protected: %d %v", code, v)
	}
}

// endless is a body that goes on for ever.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

// TestFlashMemory: a body that does not end, or says that it is longer than any memory, takes none.
func TestFlashMemory(t *testing.T) {
	h := admin.BootHandler(admin.Bare(open(t)), &boots{})
	for _, path := range []string{"PUT /v1/flash/data?offset=0", "POST /v1/flash/erase", "POST /v1/boot"} {
		method, path, _ := strings.Cut(path, " ")
		e := &endless{}
		r := httptest.NewRequest(method, path, io.NopCloser(e))
		r.ContentLength = 1 << 60
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if w.Code < 400 || w.Code > 499 || e.read > 4<<20 {
			t.Errorf("%s: %d after %d bytes: %.200s", path, w.Code, e.read, w.Body)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
			t.Errorf("%s: %d bytes were allocated", path, n)
		}
	}
}

// TestFlashTogether: two who load at once into slots of their own do not disturb each other, nor a third who looks.
func TestFlashTogether(t *testing.T) {
	h := admin.BootHandler(admin.Bare(open(t)), &boots{})
	if code, v := ask(t, h, "PUT", "/v1/flash/protect", `{"on": false}`); code != 200 {
		t.Fatalf("%d %v", code, v)
	}
	const bytesEach = 3000 // not whole pages
	image := func(slot int) string { return strings.Repeat(string(rune('a'+slot)), bytesEach) }
	var all sync.WaitGroup
	for slot := 1; slot <= 2; slot++ {
		all.Go(func() {
			for range 3 {
				if code, v := ask(t, h, "POST", "/v1/flash/erase", fmt.Sprintf(`{"offset": %d}`, slot<<24)); code != 200 {
					t.Errorf("erase slot %d: %d %v", slot, code, v)
				}
				if code, v := ask(t, h, "PUT", fmt.Sprintf("/v1/flash/data?offset=%d", slot<<24+100), image(slot)); code != 200 {
					t.Errorf("program slot %d: %d %v", slot, code, v)
				}
				if got := string(octets(t, h, slot<<24+100, bytesEach)); got != image(slot) {
					t.Errorf("slot %d holds %.40q…", slot, got)
				}
			}
		})
	}
	all.Go(func() {
		for range 6 {
			if code, v := ask(t, h, "GET", "/v1/flash", ""); code != 200 || at(v, "bytes") != float64(64<<20) {
				t.Errorf("%d %v", code, v)
			}
		}
	})
	all.Wait()
}

// TestAlarms: the card's alarms are told, and keep it from being booted.
func TestAlarms(t *testing.T) {
	c, card := openBoth(t)
	b := &boots{}
	h := admin.BootHandler(admin.Bare(c), b)
	if _, v := ask(t, h, "GET", "/v1/flash", ""); at(v, "alarms.temperature") != false || at(v, "alarms.voltage") != false {
		t.Errorf("%v", at(v, "alarms"))
	}
	card.SetSensors(emu.Sensors{Temperature: 99_000, Vccint: 1000, Vccaux: 1800})
	if _, v := ask(t, h, "GET", "/v1/flash", ""); at(v, "alarms.temperature") != true || at(v, "alarms.celsius") != 99.0 {
		t.Errorf("%v", at(v, "alarms"))
	}
	code, v := ask(t, h, "POST", "/v1/boot", `{"slot": 0, "live": true}`)
	if code != 409 || at(v, "error.exit") != 6.0 || !strings.Contains(fmt.Sprint(at(v, "error.why")), "99.0 °C") || b.asked != nil {
		t.Errorf("%d %v, %+v", code, v, b.asked)
	}
	card.SetSensors(emu.Sensors{Temperature: 40_000, Vccint: 1000, Vccaux: 1800})
	if code, v := ask(t, h, "POST", "/v1/boot", `{"slot": 0, "live": true}`); code != 200 || len(b.asked) != 1 {
		t.Errorf("after it has cooled down: %d %v, %+v", code, v, b.asked)
	}
}

// TestBootUnplanned: what a plan refuses is not asked for, so that nothing is drained for it.
func TestBootUnplanned(t *testing.T) {
	b := &boots{wrong: &program.Refused{Rule: "image", What: "slot 1 is empty", Do: "load an image first"}}
	h := admin.BootHandler(admin.Bare(open(t)), b)
	if code, v := ask(t, h, "POST", "/v1/boot", `{"slot": 1, "live": true}`); code < 400 || !strings.Contains(fmt.Sprint(v), "slot 1 is empty") {
		t.Errorf("%d %v", code, v)
	}
	if len(b.asked) != 0 {
		t.Errorf("asked for %+v", b.asked)
	}
	b.wrong = nil
	if code, v := ask(t, h, "POST", "/v1/boot", `{"slot": 1, "live": true, "bad": true}`); code != 200 || len(b.asked) != 1 || !b.asked[0].Bad {
		t.Errorf("%d %v, asked for %+v", code, v, b.asked)
	}
}

// TestFlashDataOfAForm: the bytes are programmed whatever a client calls them; curl calls them a form, if not told otherwise.
func TestFlashDataOfAForm(t *testing.T) {
	h := admin.BootHandler(admin.Bare(open(t)), &boots{})
	for i, kind := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/octet-stream", ""} {
		at, want := uint32(0x3100000+i*256), []byte("offset=1&length=2")
		r := httptest.NewRequest("PUT", fmt.Sprintf("/v1/flash/data?offset=%d", at), bytes.NewReader(want))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := octets(t, h, int(at), len(want))
		if w.Code != http.StatusOK || !bytes.Equal(got, want) {
			t.Errorf("%q: status %d, the flash has %q", kind, w.Code, got)
		}
	}
}
