//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The Debian releases that things come from.
const (
	bookworm  = "bookworm"
	trixie    = "trixie"
	backports = "trixie-backports"
)

// DirVariable names another private folder than the user's cache; MirrorVariable another Debian archive than the one this
// machine's apt uses.
const (
	DirVariable    = "SPLICE_VM_DIR"
	MirrorVariable = "SPLICE_VM_MIRROR"
)

// keyring is what Debian's archives are signed with.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// A Store is the private folder: QEMU, kernels and the state of the apt that fetches them. What is whole stands under its
// final name; the rest is made anew.
type Store struct {
	Dir string
	Log io.Writer // what is being fetched; nil: nothing is told

	fetching bool // apt is set up
}

// OpenStore finds the private folder.
func OpenStore(log io.Writer) (*Store, error) {
	dir := os.Getenv(DirVariable)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a folder for virtual machines: %w; name one with %s", err, DirVariable)
		}
		dir = filepath.Join(cache, "splicenic", "vm")
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = io.Discard
	}
	return &Store{Dir: dir, Log: log}, nil
}

// entry returns the folder of a thing, made by fill where it is not there.
func (s *Store) entry(name string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(s.Dir, name)
	unlock, err := s.lock(name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return "", err
	}
	fmt.Fprintf(s.Log, "making %s\n", dir)
	if err := fill(part); err != nil {
		return "", fmt.Errorf("make %s: %w", dir, err)
	}
	return dir, os.Rename(part, dir)
}

// lock keeps other processes from doing the same at the same time.
func (s *Store) lock(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f.Close, nil
}

// command runs a program and returns its standard output; what it writes on standard error is in the error.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &out, &errs
	c.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tail(errs.Bytes(), 2000))
	}
	return out.Bytes(), nil
}

func tail(b []byte, n int) []byte { return bytes.TrimSpace(b[max(0, len(b)-n):]) }

// mirror is the Debian archive of this machine's apt.
func mirror(ctx context.Context) (string, error) {
	if m := os.Getenv(MirrorVariable); m != "" {
		return m, nil
	}
	out, err := command(ctx, "", "apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(COMPONENT) $(CODENAME) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		// The codename tells the archive from its updates.
		if f := strings.Fields(line); len(f) == 5 && f[0] == "Debian" && f[1] == "Debian" && f[2] == "main" && !strings.Contains(f[3], "-") {
			return f[4], nil
		}
	}
	return "", fmt.Errorf("this machine's apt knows no Debian archive; run apt-get update, or name one with %s", MirrorVariable)
}

// apt sets up an apt with a state of its own: another folder, no installed package, three releases. It takes from the
// machine's apt how to reach archives, and nothing else.
func (s *Store) apt(ctx context.Context) error {
	if s.fetching {
		return nil
	}
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the virtual machine's programs are amd64 ones, this machine is %s", runtime.GOARCH)
	}
	for _, p := range []struct{ program, pkg string }{{"apt-get", "apt"}, {"dpkg-deb", "dpkg"}, {"tar", "tar"}} {
		if _, err := exec.LookPath(p.program); err != nil {
			return fmt.Errorf("needs package %s, of Debian: %w", p.pkg, err)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("needs package debian-archive-keyring: %w", err)
	}
	from, err := mirror(ctx)
	if err != nil {
		return err
	}
	reach, err := command(ctx, "", "apt-config", "dump", "Acquire")
	if err != nil {
		return err
	}
	dir := filepath.Join(s.Dir, "apt")
	for _, d := range []string{"etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d", "etc/trusted.gpg.d", "state/lists/partial", "cache"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	var sources, conf strings.Builder
	for _, suite := range []string{bookworm, trixie, backports} {
		fmt.Fprintf(&sources, "deb [arch=amd64 signed-by=%s] %s %s main\n", keyring, from, suite)
	}
	for line := range strings.Lines(string(reach)) {
		if !strings.HasSuffix(strings.TrimSpace(line), `"";`) { // a name without a value
			conf.WriteString(line)
		}
	}
	fmt.Fprintf(&conf, "Dir::Etc %q;\nDir::State %q;\nDir::State::status %q;\nDir::Cache %q;\n",
		dir+"/etc", dir+"/state", dir+"/status", dir+"/cache")
	conf.WriteString(`APT::Architecture "amd64";` + "\n" + `APT::Install-Recommends "false";` + "\n" + `APT::Sandbox::User "root";` + "\n" +
		`Acquire::Languages "none";` + "\n" + `Acquire::Retries "3";` + "\n")
	for name, text := range map[string]string{"etc/sources.list": sources.String(), "apt.conf": conf.String(), "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.Log, "reading the package lists of %s\n", from)
	if _, err := s.aptCommand(ctx, "", "apt-get", "-qq", "update"); err != nil {
		return err
	}
	s.fetching = true
	return nil
}

// aptRun runs a program of the private apt, which is set up the first time.
func (s *Store) aptRun(ctx context.Context, dir string, args ...string) ([]byte, error) {
	unlock, err := s.lock("apt")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.apt(ctx); err != nil {
		return nil, err
	}
	return s.aptCommand(ctx, dir, args...)
}

func (s *Store) aptCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	return command(ctx, dir, "env", append([]string{"APT_CONFIG=" + filepath.Join(s.Dir, "apt/apt.conf")}, args...)...)
}

// install unpacks packages with all they depend on below dir, an empty folder. None of their scripts runs.
func (s *Store) install(ctx context.Context, dir, release string, packages ...string) error {
	archives := filepath.Join(dir, "archives")
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return err
	}
	if _, err := s.aptRun(ctx, "", append([]string{"apt-get", "-qq", "-y", "-d", "-o", "Dir::Cache::archives=" + archives, "install", "-t", release}, packages...)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	// Debian's packages expect the merged layout of /usr.
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "usr", d), 0o755), os.Symlink("usr/"+d, filepath.Join(dir, d))); err != nil {
			return err
		}
	}
	for _, deb := range debs {
		if err := unpack(ctx, deb, dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(archives)
}

// download downloads one package into dir and returns its file.
func (s *Store) download(ctx context.Context, dir, pkg string) (string, error) {
	if _, err := s.aptRun(ctx, dir, "apt-get", "-qq", "download", pkg); err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(pkg, "/")
	found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("download %s: %d files came", pkg, len(found))
	}
	return found[0], nil
}

// depends returns the package of a release that a package depends on and whose name starts with prefix.
func (s *Store) depends(ctx context.Context, pkg, prefix string) (string, error) {
	out, err := s.aptRun(ctx, "", "apt-cache", "depends", pkg)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(name, prefix) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s depends on no %s…", pkg, prefix)
}

// unpack unpacks a package below dir, only what the patterns of tar name where there are any.
func unpack(ctx context.Context, deb, dir string, patterns ...string) error {
	from := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	args := []string{"-x", "--keep-directory-symlink", "-C", dir}
	if len(patterns) > 0 {
		args = append(append(args, "--wildcards"), patterns...)
	}
	to := exec.CommandContext(ctx, "tar", args...)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	from.Stdout, to.Stdin, to.Stderr = w, r, &errs
	err = from.Start()
	w.Close()
	if err == nil {
		err = errors.Join(to.Run(), from.Wait())
	}
	r.Close()
	if err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", filepath.Base(deb), err, tail(errs.Bytes(), 1000))
	}
	return nil
}
