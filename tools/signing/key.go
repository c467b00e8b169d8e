package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"splicenic/bitstream/container"
	"splicenic/tools/control"
	"splicenic/tools/imagefile"
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
	if s, err := os.Stat(base); err == nil {
		return Pair{}, control.Usage(fmt.Sprintf("%s: got %s, wanted a name for new files", base, imagefile.Kind(s.Mode())), "keygen NAME writes NAME.key and NAME.pub")
	}
	if ext := filepath.Ext(base); ext == ".key" || ext == ".pub" || filepath.Base(base) == "." || os.IsPathSeparator(base[len(base)-1]) {
		return Pair{}, control.Usage(fmt.Sprintf("got %q, wanted a name without .key and .pub", base), "keygen NAME writes NAME.key and NAME.pub")
	}
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
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// PrivateKey reads the key that signs.
func PrivateKey(name string) (ed25519.PrivateKey, error) {
	return keys(name, "a private key", "splicectl bitstream keygen NAME makes one, NAME.key", container.ParsePrivateKey)
}

// Trusted reads the keys whose signatures count: those in the named files, or in KeyDir where none is named.
func Trusted(files []string) ([]ed25519.PublicKey, error) {
	if len(files) == 0 {
		files, _ = filepath.Glob(filepath.Join(KeyDir, "*.pub"))
		slices.Sort(files)
	}
	var all []ed25519.PublicKey
	for _, name := range files {
		k, err := keys(name, "a public key", "name the .pub file that splicectl bitstream keygen wrote", container.ParsePublicKeys)
		if err != nil {
			return nil, err
		}
		all = append(all, k...)
	}
	return all, nil
}

// keys reads a small file and parses it. Errors say what is in it instead of what was wanted.
func keys[K any](name, wanted, do string, parse func(text []byte) (K, error)) (k K, err error) {
	f, size, err := imagefile.OpenFile(name, wanted)
	if err != nil {
		return k, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return k, control.Usage(err.Error(), "name a file that can be read")
	}
	if len(text) > maxKeyFile {
		what := imagefile.What(text)
		if size > maxKeyFile {
			what += fmt.Sprintf(", of %d bytes", size)
		}
		return k, control.Usage(fmt.Sprintf("%s: got %s, wanted %s", name, what, wanted), do)
	}
	if k, err = parse(text); err == nil {
		return k, nil
	}
	what := imagefile.What(text)
	if what == wanted {
		what += " that cannot be used: " + err.Error()
	}
	return k, control.Usage(fmt.Sprintf("%s: got %s, wanted %s", name, what, wanted), do)
}
