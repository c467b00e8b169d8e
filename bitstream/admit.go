package bitstream

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"splicenic/bitstream/container"
)

// An Admission is what a card and its host ask of an image before a byte of the flash is changed.
type Admission struct {
	Target                      // the card; see Fit
	Board   uint32              // identity.board; 0: not known
	Trusted []ed25519.PublicKey // whose signatures count
	Floor   uint32              // the highest rollback counter that the card took so far

	Host           container.Version // of this program; zero: a development build, of which that is not known
	ShellDigest    string            // of the register map this host drives: SHA-256 as 64 hexadecimal digits
	DataPathDigest string
	ForHost        *container.Version // the host that will drive the image, whose release counts; nil: this one

	Unsigned bool // take an image that is no container, or that a stranger signed: nobody vouches for it
}

// Admit compares an image with what is asked of it. Nothing is refused without both values. What it does not return it
// found well.
func Admit(img *Image, a Admission) []Finding {
	out := Fit(img, a.Target)
	add := func(s Severity, rule, format string, args ...any) {
		out = append(out, Finding{s, rule, fmt.Sprintf(format, args...)})
	}
	f := img.Container
	if f == nil {
		if a.Unsigned {
			add(Warn, "signature", "the image is not signed: board, digests and rollback counter cannot be checked")
		} else {
			add(Refuse, "signature", "the image is not signed; sign it, or say --unsigned")
		}
		return out
	}
	m := &f.Manifest
	switch err := f.Verify(a.Trusted); {
	case errors.Is(err, container.ErrKey) && a.Unsigned && m.Match(f.Payload) == nil:
		add(Warn, "signature", "not looked at: %v", err)
	case errors.Is(err, container.ErrDigest):
		add(Refuse, "digest", "%v", err)
	case err != nil:
		add(Refuse, "signature", "%v", err)
	}
	if a.Board == 0 {
		add(Skipped, "board", "the card's board is not known")
	} else if m.Board != a.Board {
		add(Refuse, "board", "the image is for board %d, the card is board %d", m.Board, a.Board)
	}
	if m.ShellDigest != a.ShellDigest {
		add(Refuse, "shell digest", "the image has shell %s, this host drives %s: the card could not be loaded again", m.ShellDigest, a.ShellDigest)
	}
	switch {
	case m.DataPathDigest == a.DataPathDigest:
	case a.ForHost == nil:
		add(Refuse, "data-path digest", "the image has data path %s, this host drives %s; --for-host VERSION names the release that drives it", m.DataPathDigest, a.DataPathDigest)
	default:
		add(Warn, "data-path digest", "the image has data path %s, this host drives %s: host %v is needed to run it", m.DataPathDigest, a.DataPathDigest, *a.ForHost)
	}
	switch {
	case a.ForHost != nil:
		if a.ForHost.Less(m.MinHost) {
			add(Refuse, "host version", "the image needs host %v, --for-host names %v", m.MinHost, *a.ForHost)
		}
	case m.MinHost == (container.Version{}): // any
	case a.Host == (container.Version{}):
		add(Skipped, "host version", "the image needs host %v, and this is a development build without a version", m.MinHost)
	case a.Host.Less(m.MinHost):
		add(Refuse, "host version", "the image needs host %v, this is %v", m.MinHost, a.Host)
	}
	if m.Rollback < a.Floor {
		add(Refuse, "rollback", "the image's rollback counter is %d, the card took %d", m.Rollback, a.Floor)
	}
	return out
}

// Refused says whether any finding forbids to write.
func Refused(findings []Finding) bool {
	for _, f := range findings {
		if f.Severity == Refuse {
			return true
		}
	}
	return false
}
