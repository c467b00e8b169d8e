package bitstream

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Manufacturers, as an IDCODE's bits 11 to 1 say them.
const (
	lattice = 0x021
	xilinxs = 0x049
	intel   = 0x06e
	gowin   = 0x40d
)

// mask is what counts of an IDCODE. Four bits of it are a version: of the silicon for Xilinx, Intel and Gowin, whose files
// carry whichever was first. For Lattice they tell parts apart (ECP5-12F and -25F differ in nothing else), and so they
// may for makers that are not known here.
func mask(id uint32) uint32 {
	switch id >> 1 & 0x7ff {
	case xilinxs, intel, gowin:
		return 0x0fffffff
	}
	return 0xffffffff
}

// sameDevice says whether a file's IDCODE is a device's.
func sameDevice(file, device uint32) bool {
	m := mask(device)
	return file&m == device&m
}

var byID = sync.OnceValue(func() map[uint32][]string {
	m := map[uint32][]string{}
	for _, p := range parts {
		m[p.id&mask(p.id)] = append(m[p.id&mask(p.id)], strings.Fields(p.names)...)
	}
	return m
})

// Names are the parts that have an IDCODE; none: it is not known here. The version is ignored where it is one.
func Names(id uint32) []string {
	return append([]string{}, byID()[id&mask(id)]...)
}

// byName are all names in the form that plain gives, the longest first.
var byName = sync.OnceValue(func() []string {
	var all []string
	for _, names := range byID() {
		for _, n := range names {
			all = append(all, plain(n))
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	return all
})

// plain is a name as it can be compared: headers of Xilinx's older families leave the xc out.
func plain(name string) string { return strings.TrimPrefix(strings.ToLower(name), "xc") }

// known finds which part the text of a header is about, with package and speed behind the name: 7a35tcpg236 is 7a35t.
// The longest name counts, for 6slx45tfgg484 is no 6slx45.
func known(text string) string {
	text = plain(text)
	for _, n := range byName() {
		if strings.HasPrefix(text, n) {
			return n
		}
	}
	return ""
}

// samePart says whether the text of a header may be about one of the names. Text about a part that is not known here may.
func samePart(text string, names []string) bool {
	k := known(text)
	return k == "" || slices.ContainsFunc(names, func(n string) bool { return plain(n) == k })
}

// parts are IDCODEs and the parts that have them, several where they share one. Those of other dies of a part of several
// are not here: their names would say nothing.
var parts = []struct {
	id    uint32
	names string
}{
	// Spartan-3, -3E, -3A, -3AN, -3A DSP
	{0x01414093, "XC3S200"}, {0x0141c093, "XC3S400"}, {0x01428093, "XC3S1000"}, {0x01434093, "XC3S1500"},
	{0x01440093, "XC3S2000"}, {0x01448093, "XC3S4000"}, {0x01450093, "XC3S5000"},
	{0x01c10093, "XC3S100E"}, {0x01c1a093, "XC3S250E"}, {0x01c22093, "XC3S500E"}, {0x01c2e093, "XC3S1200E"}, {0x01c3a093, "XC3S1600E"},
	{0x02210093, "XC3S50A"}, {0x02218093, "XC3S200A"}, {0x02220093, "XC3S400A"}, {0x02228093, "XC3S700A"}, {0x02230093, "XC3S1400A"},
	{0x02610093, "XC3S50AN"}, {0x02618093, "XC3S200AN"}, {0x02620093, "XC3S400AN"}, {0x02628093, "XC3S700AN"}, {0x02630093, "XC3S1400AN"},
	{0x03840093, "XC3SD1800A"}, {0x0384e093, "XC3SD3400A"},

	// Spartan-6
	{0x04000093, "XC6SLX4"}, {0x04001093, "XC6SLX9"}, {0x04002093, "XC6SLX16"}, {0x04004093, "XC6SLX25"}, {0x04024093, "XC6SLX25T"},
	{0x04008093, "XC6SLX45"}, {0x04028093, "XC6SLX45T"}, {0x0400e093, "XC6SLX75"}, {0x0402e093, "XC6SLX75T"},
	{0x04011093, "XC6SLX100"}, {0x04031093, "XC6SLX100T"}, {0x0401d093, "XC6SLX150"}, {0x0403d093, "XC6SLX150T"},

	// Virtex-5, Virtex-6
	{0x0286e093, "XC5VLX30"}, {0x02896093, "XC5VLX50"}, {0x028ae093, "XC5VLX85"}, {0x028d6093, "XC5VLX110"},
	{0x02a6e093, "XC5VLX30T"}, {0x02a96093, "XC5VLX50T"}, {0x02aae093, "XC5VLX85T"}, {0x02ad6093, "XC5VLX110T"},
	{0x02e72093, "XC5VSX35T"}, {0x02e9a093, "XC5VSX50T"}, {0x02ece093, "XC5VSX95T"},
	{0x04244093, "XC6VLX75T"}, {0x0424a093, "XC6VLX130T"}, {0x0424c093, "XC6VLX195T"}, {0x04250093, "XC6VLX240T"},
	{0x04252093, "XC6VLX365T"}, {0x04256093, "XC6VLX550T"}, {0x0423a093, "XC6VLX760"}, {0x04286093, "XC6VSX315T"}, {0x04288093, "XC6VSX475T"},

	// 7 series
	{0x03622093, "XC7S6"}, {0x03620093, "XC7S15"}, {0x037c4093, "XC7S25"}, {0x0362f093, "XC7S50"}, {0x037c8093, "XC7S75"}, {0x037c7093, "XC7S100"},
	{0x037c3093, "XC7A12T"}, {0x0362e093, "XC7A15T"}, {0x037c2093, "XC7A25T"}, {0x0362d093, "XC7A35T"}, {0x0362c093, "XC7A50T"},
	{0x03632093, "XC7A75T"}, {0x03631093, "XC7A100T"}, {0x03636093, "XC7A200T"},
	{0x03647093, "XC7K70T"}, {0x0364c093, "XC7K160T"}, {0x03651093, "XC7K325T"}, {0x03747093, "XC7K355T"}, {0x03656093, "XC7K410T"},
	{0x03752093, "XC7K420T"}, {0x03751093, "XC7K480T"},
	{0x03671093, "XC7V585T"}, {0x036b3093, "XC7V2000T"}, {0x03667093, "XC7VX330T"}, {0x03682093, "XC7VX415T"}, {0x03687093, "XC7VX485T"},
	{0x03692093, "XC7VX550T"}, {0x03691093, "XC7VX690T"}, {0x03696093, "XC7VX980T"}, {0x036d5093, "XC7VX1140T"},
	{0x036d9093, "XC7VH580T"}, {0x036db093, "XC7VH870T"},
	{0x03723093, "XC7Z007S"}, {0x03722093, "XC7Z010"}, {0x0373c093, "XC7Z012S"}, {0x03728093, "XC7Z014S"}, {0x0373b093, "XC7Z015"},
	{0x03727093, "XC7Z020"}, {0x0372c093, "XC7Z030"}, {0x03732093, "XC7Z035"}, {0x03731093, "XC7Z045"}, {0x03736093, "XC7Z100"},

	// UltraScale
	{0x03824093, "XCKU025"}, {0x03823093, "XCKU035"}, {0x03822093, "XCKU040"}, {0x03919093, "XCKU060"}, {0x03844093, "XCKU095"}, {0x0390d093, "XCKU115"},
	{0x03939093, "XCVU065"}, {0x03843093, "XCVU080"}, {0x03842093, "XCVU095"}, {0x0392d093, "XCVU125"}, {0x03933093, "XCVU160"},
	{0x03931093, "XCVU190"}, {0x0396d093, "XCVU440"},

	// UltraScale+
	{0x04a65093, "XCAU20P"}, {0x04a64093, "XCAU25P"},
	{0x04a63093, "XCKU3P"}, {0x04a62093, "XCKU5P"}, {0x0484a093, "XCKU9P"}, {0x04a4e093, "XCKU11P"}, {0x04a52093, "XCKU13P"},
	{0x04a56093, "XCKU15P"}, {0x04acf093, "XCKU19P"}, {0x04a49093, "XCK26"},
	{0x04b39093, "XCVU3P"}, {0x04b2b093, "XCVU5P"}, {0x04b29093, "XCVU7P"}, {0x04b31093, "XCVU9P"}, {0x04b49093, "XCVU11P"}, {0x04b51093, "XCVU13P"},
	{0x04ba1093, "XCVU19P"}, {0x04ace093, "XCVU23P"}, {0x04b43093, "XCVU27P"}, {0x04b41093, "XCVU29P"}, {0x04b6b093, "XCVU31P"}, {0x04b69093, "XCVU33P"},
	{0x04b71093, "XCVU35P"}, {0x04b79093, "XCVU37P"}, {0x04b73093, "XCVU45P"}, {0x04b7b093, "XCVU47P"}, {0x04b61093, "XCVU57P"},
	{0x04ad5093, "XCU26"}, {0x04b77093, "XCU50 XCU55N"}, {0x04b37093, "XCU200"}, {0x04b57093, "XCU250"}, {0x04b7d093, "XCU280 XCU55C"},
	{0x04688093, "XCZU1"}, {0x04711093, "XCZU2"}, {0x04710093, "XCZU3"}, {0x04721093, "XCZU4"}, {0x04720093, "XCZU5"}, {0x04739093, "XCZU6"},
	{0x04730093, "XCZU7"}, {0x04738093, "XCZU9"}, {0x04740093, "XCZU11"}, {0x04750093, "XCZU15"}, {0x04759093, "XCZU17"}, {0x04758093, "XCZU19"},
	{0x047e1093, "XCZU21"}, {0x047e5093, "XCZU25"}, {0x047e4093, "XCZU27"}, {0x047e0093, "XCZU28"}, {0x047e2093, "XCZU29"}, {0x047e6093, "XCZU39"},
	{0x047fd093, "XCZU43"}, {0x047f8093, "XCZU46"}, {0x047ff093, "XCZU47"}, {0x047fb093, "XCZU48"}, {0x047fe093, "XCZU49"},

	// Intel, formerly Altera
	{0x020b10dd, "EP2C5"},
	{0x020f10dd, "EP3C5 EP3C10 EP4CE6 EP4CE10 10CL006 10CL010"}, {0x020f20dd, "EP3C16 EP4CE15 10CL016"}, {0x020f30dd, "EP3C25 EP4CE22 10CL025"},
	{0x020f40dd, "EP3C40 EP4CE30 EP4CE40 10CL040"}, {0x020f50dd, "EP3C55 EP4CE55 10CL055"}, {0x020f60dd, "EP3C80 EP4CE75 10CL080"},
	{0x020f70dd, "EP3C120 EP4CE115 10CL120"}, {0x028040dd, "EP4CGX150"},
	{0x02b010dd, "5CGXC3"}, {0x02b020dd, "5CGTD5 5CGXC5"}, {0x02b030dd, "5CGTD7 5CGXC7"}, {0x02b040dd, "5CGTD9 5CGXC9"},
	{0x02b050dd, "5CEA4"}, {0x02b120dd, "5CGXC4"}, {0x02b130dd, "5CEA7"}, {0x02b140dd, "5CEA9"}, {0x02b150dd, "5CEA2"}, {0x02b220dd, "5CEA5"},
	{0x02d010dd, "5CSEA4 5CSXC4"}, {0x02d020dd, "5CSEA6 5CSXC6"}, {0x02d110dd, "5CSEA2 5CSXC2"}, {0x02d120dd, "5CSEA5 5CSTD5 5CSXC5"},
	{0x029070dd, "5SGSD5"},
	{0x031810dd, "10M02S"}, {0x031820dd, "10M08S"}, {0x031830dd, "10M16S"}, {0x0318d0dd, "10M40S"}, {0x031850dd, "10M50S"}, {0x031050dd, "10M50D"},

	// Lattice
	{0x21111043, "LFE5U-12F"}, {0x41111043, "LFE5U-25F"}, {0x41112043, "LFE5U-45F"}, {0x41113043, "LFE5U-85F"},
	{0x01111043, "LFE5UM-25F"}, {0x01112043, "LFE5UM-45F"}, {0x01113043, "LFE5UM-85F"},
	{0x81111043, "LFE5UM5G-25F"}, {0x81112043, "LFE5UM5G-45F"}, {0x81113043, "LFE5UM5G-85F"},
	{0x010f0043, "LIFCL-17"}, {0x010f1043, "LIFCL-40"}, {0x310f0043, "LFD2NX-17"}, {0x310f1043, "LFD2NX-40"}, {0x010f4043, "LFCPNX-100"},
	{0x01014043, "LFE3-70E"}, {0x01015043, "LFE3-150EA"}, {0x0129a043, "LFXP2-8E"},
	{0x012b0043, "LCMXO2-256ZE"}, {0x012b1043, "LCMXO2-640ZE"}, {0x012b2043, "LCMXO2-1200ZE"}, {0x012b3043, "LCMXO2-2000ZE"}, {0x012b4043, "LCMXO2-4000ZE"},
	{0x012b5043, "LCMXO2-7000ZE"}, {0x012b8043, "LCMXO2-256HC"}, {0x012b9043, "LCMXO2-640HC"}, {0x012ba043, "LCMXO2-1200HC LCMXO2-640UHC"},
	{0x012bb043, "LCMXO2-2000HC LCMXO2-1200UHC"}, {0x012bc043, "LCMXO2-4000HC LCMXO2-2000UHC"}, {0x012bd043, "LCMXO2-7000HC"},
	{0x412b2043, "LCMXO3L-1300E"}, {0x412b3043, "LCMXO3L-2100E"}, {0x412b4043, "LCMXO3L-4300E"}, {0x412b5043, "LCMXO3L-6900E"}, {0x412b6043, "LCMXO3L-9400E"},
	{0x412bb043, "LCMXO3L-2100C"}, {0x412bc043, "LCMXO3L-4300C"}, {0x412bd043, "LCMXO3L-6900C"}, {0x412be043, "LCMXO3L-9400C"}, {0xc12b2043, "LCMXO3L-640E"},
	{0x612b2043, "LCMXO3LF-1300E"}, {0x612b3043, "LCMXO3LF-2100E"}, {0x612b4043, "LCMXO3LF-4300E"}, {0x612b5043, "LCMXO3LF-6900E"}, {0x612b6043, "LCMXO3LF-9400E"},
	{0x612bb043, "LCMXO3LF-2100C"}, {0x612bc043, "LCMXO3LF-4300C"}, {0x612bd043, "LCMXO3LF-6900C"}, {0x612be043, "LCMXO3LF-9400C"}, {0xe12b2043, "LCMXO3LF-640E"},

	// Gowin
	{0x0900281b, "GW1N-1"}, {0x0120681b, "GW1N-2"}, {0x0100381b, "GW1N-4"}, {0x0100481b, "GW1N-9C GW1NR-9C"}, {0x0100581b, "GW1N-9 GW1NR-9"},
	{0x0100681b, "GW1NZ-1"}, {0x0300181b, "GW1NS-2C"}, {0x0100981b, "GW1NS-4C GW1NSR-4C"}, {0x0000081b, "GW2A-18 GW2AR-18"}, {0x0000281b, "GW2A-55"},
	{0x0001281b, "GW5A-25"}, {0x0001681b, "GW5AT-15"}, {0x0001481b, "GW5AT-60"}, {0x0001181b, "GW5AT-138"}, {0x0001081b, "GW5AST-138"},

	// Others
	{0x04014c35, "EG4D20"}, {0x0a014c35, "EG4S20"}, {0x00004c37, "EF2M45"},
	{0x00210a79, "T13 T20"}, {0x00220a79, "T55 T85 T120"}, {0x00240a79, "T35"}, {0x00660a79, "Ti60"}, {0x00661a79, "Ti35"}, {0x00690a79, "Ti180"},
	{0x20000001, "GM1A1"},
}
