package container

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Types of PEM blocks, as other tools write them.
const (
	publicBlock  = "PUBLIC KEY"  // SubjectPublicKeyInfo, RFC 8410
	privateBlock = "PRIVATE KEY" // PKCS #8
)

// ID names a public key in messages: the first 16 hexadecimal digits of its SHA-256.
func ID(k ed25519.PublicKey) string {
	s := sha256.Sum256(k)
	return hex.EncodeToString(s[:8])
}

func ids(keys []ed25519.PublicKey) string {
	if len(keys) == 0 {
		return "none"
	}
	var names []string
	for _, k := range keys {
		names = append(names, ID(k))
	}
	return strings.Join(names, ", ")
}

// MarshalKey returns a private key and its public key as PEM.
func MarshalKey(k ed25519.PrivateKey) (private, public []byte, err error) {
	p, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, fmt.Errorf("write private key: %w", err)
	}
	q, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("write public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: p}), pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: q}), nil
}

// ParsePublicKeys reads every public key of a PEM text; one at least.
func ParsePublicKeys(text []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	err := blocks(text, publicBlock, func(der []byte) error {
		k, err := x509.ParsePKIXPublicKey(der)
		if err != nil {
			return err
		}
		e, ok := k.(ed25519.PublicKey)
		if !ok {
			return fmt.Errorf("it is a %T, not an ed25519 key", k)
		}
		keys = append(keys, e)
		return nil
	})
	return keys, err
}

// ParsePrivateKey reads the one private key of a PEM text.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	var key ed25519.PrivateKey
	err := blocks(text, privateBlock, func(der []byte) error {
		k, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return err
		}
		e, ok := k.(ed25519.PrivateKey)
		switch {
		case !ok:
			return fmt.Errorf("it is a %T, not an ed25519 key", k)
		case key != nil:
			return errors.New("there are two private keys in one file")
		}
		key = e
		return nil
	})
	return key, err
}

// blocks gives the contents of every block of a PEM text, which are all of one type.
func blocks(text []byte, kind string, each func(der []byte) error) error {
	n := 0
	for {
		b, rest := pem.Decode(text)
		if b == nil {
			break
		}
		if b.Type != kind {
			return fmt.Errorf("got PEM block %q, wanted %q", b.Type, kind)
		}
		if err := each(b.Bytes); err != nil {
			return fmt.Errorf("PEM block %q: %w", b.Type, err)
		}
		n, text = n+1, rest
	}
	if n == 0 {
		return fmt.Errorf("there is no PEM block %q", kind)
	}
	if strings.TrimSpace(string(text)) != "" {
		return errors.New("there is something after the last PEM block")
	}
	return nil
}
