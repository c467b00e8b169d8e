package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"splicenic/bitstream/container"
	"splicenic/tools/control"
)

// KeyDir holds the public keys that this machine trusts, one or more a file *.pub.
const KeyDir = "/etc/splicenic/keys"

// maxKeyFile bounds a file with keys.
const maxKeyFile = 1 << 16

// A Pair is what Keygen wrote.
type Pair struct {
	ID      string `json:"id"`
	Private string `json:"private"` // file
	Public  string `json:"public"`
}

// Keygen makes a key pair: base.key, for its owner alone, and base.pub. It overwrites nothing.
func Keygen(base string) (Pair, error) {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	private, public, err := container.MarshalKey(k)
	if err != nil {
		return Pair{}, err
	}
	p := Pair{ID: container.ID(k.Public().(ed25519.PublicKey)), Private: base + ".key", Public: base + ".pub"}
	if err := create(p.Public, public, 0o644); err != nil {
		return Pair{}, err
	}
	if err := create(p.Private, private, 0o600); err != nil {
		return Pair{}, errors.Join(err, os.Remove(p.Public))
	}
	return p, nil
}

// create writes a file that is not there yet.
func create(name string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return control.Refuse(name+" is there already", "a key that signed images is not overwritten", "choose another name, or remove the file")
	}
	if err != nil {
		return control.Usage(err.Error(), "name a file in a directory that can be written")
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// PrivateKey reads the key that signs.
func PrivateKey(name string) (ed25519.PrivateKey, error) {
	text, err := read(name)
	if err != nil {
		return nil, err
	}
	k, err := container.ParsePrivateKey(text)
	if err != nil {
		return nil, control.Usage(fmt.Sprintf("%s is no private key: %v", name, err), "splicectl bitstream keygen NAME makes one, NAME.key")
	}
	return k, nil
}

// Trusted reads the keys whose signatures count: those in the named files, or in KeyDir where none is named.
func Trusted(files []string) ([]ed25519.PublicKey, error) {
	if len(files) == 0 {
		files, _ = filepath.Glob(filepath.Join(KeyDir, "*.pub"))
		slices.Sort(files)
	}
	var keys []ed25519.PublicKey
	for _, name := range files {
		text, err := read(name)
		if err != nil {
			return nil, err
		}
		k, err := container.ParsePublicKeys(text)
		if err != nil {
			return nil, control.Usage(fmt.Sprintf("%s holds no public key: %v", name, err), "name the .pub file that splicectl bitstream keygen wrote")
		}
		keys = append(keys, k...)
	}
	return keys, nil
}

// read reads a small regular file.
func read(name string) ([]byte, error) {
	s, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, control.Usage(err.Error(), "check the path")
	case !s.Mode().IsRegular():
		return nil, control.Usage(fmt.Sprintf("got %s, which is a %s; wanted a file with a key", name, kind(s.Mode())), "name a .key or .pub file")
	case s.Size() > maxKeyFile:
		return nil, control.Usage(fmt.Sprintf("%s has %d bytes, a file with keys at most %d", name, s.Size(), maxKeyFile), "name a .key or .pub file")
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, control.Usage(err.Error(), "name a file that can be read")
	}
	return b, nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&fs.ModeDevice != 0:
		return "device node"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "special file"
}
