package vfio

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseAddress returns a PCI address as sysfs writes it: 0000:3b:00.0. The domain may be left out and may have up to eight
// digits, as behind some RAID controllers; capitals are taken. Device and function numbers have their limits, 1f and 7.
func ParseAddress(s string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("parse pci address %q: %s; want [DOMAIN:]BUS:DEVICE.FUNCTION, such as 0000:3b:00.0", s, why)
	}
	rest, function, ok := strings.Cut(s, ".")
	parts := strings.Split(rest, ":")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return refuse("it has not the form")
	}
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	fields := [4]struct {
		name   string
		digits string
		width  int // digits at most
		max    uint64
	}{
		{"domain", parts[0], 8, 1<<32 - 1},
		{"bus", parts[1], 2, 0xff},
		{"device", parts[2], 2, 0x1f},
		{"function", function, 1, 7},
	}
	var v [4]uint64
	for i, f := range fields {
		n, err := strconv.ParseUint(f.digits, 16, 64)
		if err != nil || f.digits[0] == '+' {
			return refuse(fmt.Sprintf("%s %q is no hexadecimal number", f.name, f.digits))
		}
		if n > f.max {
			return refuse(fmt.Sprintf("%s %s is beyond %x", f.name, f.digits, f.max))
		}
		if len(f.digits) > f.width {
			return refuse(fmt.Sprintf("%s %q has more than %d digits", f.name, f.digits, f.width))
		}
		v[i] = n
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", v[0], v[1], v[2], v[3]), nil
}
