package vfiouser

// Configuration space, as far as this package has to know it. It is little-endian.
const (
	cfgCommand      = 0x04
	cfgStatus       = 0x06
	cfgBars         = 0x10
	cfgCapabilities = 0x34
	cfgPin          = 0x3d

	commandMaster = 1 << 2
	statusCaps    = 1 << 4

	capExpress      = 0x10
	expressCaps     = 4       // device capabilities, from the capability's start
	expressControl  = 8       // device control
	capFLR          = 1 << 28 // of the device capabilities
	controlFLRByte1 = 1 << 7  // of the upper byte of device control: initiate function-level reset
)

// findFLR returns where the upper byte of the device control register lies if the function offers a function-level reset,
// and 0 if it does not. config is the first 256 bytes. A chain that does not end does not end the walk.
func findFLR(config []byte) uint32 {
	if len(config) < 256 || config[cfgStatus]&statusCaps == 0 {
		return 0
	}
	at := int(config[cfgCapabilities] &^ 3)
	for range 48 {
		if at < 0x40 || at > 256-expressControl-2 {
			return 0
		}
		if config[at] == capExpress {
			if le.Uint32(config[at+expressCaps:])&capFLR == 0 {
				return 0
			}
			return uint32(at + expressControl + 1)
		}
		at = int(config[at+1] &^ 3)
	}
	return 0
}

// covers says whether n bytes at off hold the byte at.
func covers(off uint32, n int, at uint32) bool {
	return at >= off && uint64(at)-uint64(off) < uint64(n)
}
