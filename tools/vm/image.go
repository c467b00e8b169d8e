//go:build linux

package vm

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A Program is a file of this machine that becomes one of the guest's.
type Program struct {
	Name string // in the guest, without a leading slash
	Path string // here
}

// folders are what the guest's first program mounts on and Debian's kernel expects.
var folders = []string{"bin", "dev", "etc", "mod", "proc", "root", "run", "sys", "tmp"}

// writeImage writes a guest's initramfs: init, the kernel's modules, programs, and what init shall do with them.
func writeImage(to string, k *Kernel, init string, programs []Program, hugePages int) error {
	settings := struct {
		Modules   []string
		HugePages int
	}{[]string{}, hugePages}
	files := []File{{Name: "dev/console", Mode: modeChar | 0o600, Dev: 5<<8 | 1}, {Name: "dev/null", Mode: modeChar | 0o666, Dev: 1<<8 | 3}}
	programs = append(slices.Clone(programs), Program{"init", init})
	for _, m := range k.Modules {
		programs = append(programs, Program{"mod/" + m, filepath.Join(k.dir, m)})
		settings.Modules = append(settings.Modules, "/mod/"+m)
	}
	for _, p := range programs {
		b, err := os.ReadFile(p.Path)
		if err != nil {
			return err
		}
		files = append(files, File{Name: p.Name, Mode: modeFile | 0o755, Data: b})
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	files = append(files, File{Name: "etc/vm.json", Mode: modeFile | 0o644, Data: text})
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeCPIO(f, append(dirs(files), files...)); err != nil {
		return err
	}
	return f.Close()
}

// dirs are the folders of the guest, each before what lies in it.
func dirs(files []File) (ds []File) {
	names := slices.Clone(folders)
	for _, f := range files {
		for d := path.Dir(f.Name); d != "."; d = path.Dir(d) {
			names = append(names, d)
		}
	}
	slices.SortFunc(names, strings.Compare)
	for _, n := range slices.Compact(names) {
		ds = append(ds, File{Name: n, Mode: modeDir | 0o755})
	}
	return ds
}
