package rule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrFull is the error of a table without a place for another name.
var ErrFull = errors.New("table full")

// Indexes gives names their places in a table of the card. A name keeps its index for as long as it is used. After that
// the index is retired: the name gets it back if it returns, another name only when the caller says that the card no
// longer uses it. The zero value has no places; set Size. It is a value: Next leaves it alone.
type Indexes struct {
	Size uint32 // places of the table

	used    map[string]uint32
	retired map[string]uint32
	never   uint32 // lowest index never given out
}

// Restore gives names the indexes they have in a list, all of them retired until the next Next names them. An empty name is
// an index that was given to nobody knows whom. names must differ and not be more than size.
func Restore(size uint32, names []string) Indexes {
	x := Indexes{Size: size, retired: make(map[string]uint32, len(names)), never: uint32(len(names))}
	for i, n := range names {
		if n == "" {
			n = Nameless(uint32(i))
		}
		x.retired[n] = uint32(i)
	}
	return x
}

// Nameless stands for the name of an index whose name is not known.
func Nameless(index uint32) string { return unknown + strconv.FormatUint(uint64(index), 10) }

// unknown begins such a name, and no name in a configuration.
const unknown = "\x00"

// Names lists the names in use and retired by their indexes, for Restore; empty where there is none.
func (x Indexes) Names() []string {
	names := make([]string, x.never)
	for _, m := range [...]map[string]uint32{x.used, x.retired} {
		for n, i := range m {
			if !strings.HasPrefix(n, unknown) {
				names[i] = n
			}
		}
	}
	return names
}

// Next assigns indexes to names, which must differ, in their order. free says whether a retired index may go to another
// name; indexes never given out are preferred. The table's name stands in errors.
func (x Indexes) Next(table string, names []string, free func(index uint32) bool) (Indexes, error) {
	next := Indexes{Size: x.Size, used: make(map[string]uint32, len(names)), retired: map[string]uint32{}, never: x.never}
	wanted := make(map[string]bool, len(names))
	for _, n := range names {
		wanted[n] = true
	}
	for _, old := range [...]map[string]uint32{x.used, x.retired} {
		for n, i := range old {
			if wanted[n] {
				next.used[n] = i
			} else {
				next.retired[n] = i
			}
		}
	}
	rest := next.Retired()
	for _, n := range names {
		if _, ok := next.used[n]; ok {
			continue
		}
		if next.never < next.Size {
			next.used[n] = next.never
			next.never++
			continue
		}
		i := slices.IndexFunc(rest, func(r Named) bool { return free != nil && free(r.Index) })
		if i < 0 {
			return x, fmt.Errorf("%s: %w: it has %d entries, %d of them in use and %d removed but still named by connections", table, ErrFull, x.Size, len(next.used), len(rest))
		}
		delete(next.retired, rest[i].Name)
		next.used[n] = rest[i].Index
		rest = rest[i+1:]
	}
	return next, nil
}

// Of returns the index of a name in use.
func (x Indexes) Of(name string) (uint32, bool) {
	i, ok := x.used[name]
	return i, ok
}

// A Named is a name with its index.
type Named struct {
	Name  string
	Index uint32
}

// Used returns the names in use, in the order of their indexes.
func (x Indexes) Used() []Named { return sorted(x.used) }

// Retired returns the names out of use that still have their indexes, in the order of these.
func (x Indexes) Retired() []Named { return sorted(x.retired) }

// Bound is the lowest index above all that were ever given out.
func (x Indexes) Bound() uint32 { return x.never }

func sorted(m map[string]uint32) []Named {
	s := make([]Named, 0, len(m))
	for n, i := range m {
		s = append(s, Named{n, i})
	}
	slices.SortFunc(s, func(a, b Named) int { return cmp.Compare(a.Index, b.Index) })
	return s
}
