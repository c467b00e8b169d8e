package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"splicenic/driver/device"
)

// A Client is the device behind a server's socket. Dial makes it.
type Client struct {
	opt  Options
	path string
	info device.Info

	conn   *conn
	twin   *conn         // nil: the server sends its own commands on conn
	caps   *capabilities // the server's
	calls  sync.Pool     // *call
	gone   chan struct{} // closed when conn is of no use any more
	wg     sync.WaitGroup
	config uint32 // size of configuration space

	pmu     sync.Mutex
	pending map[uint16]*call
	id      uint16
	reading bool // a reply can still come

	regions [device.Regions]bars
	posted  atomic.Bool  // stores went by message since the last load that did
	small   atomic.Bool  // the server refuses more than a word at once
	rmu     sync.RWMutex // held over an access to mapped memory of a region

	vectors  []atomic.Pointer[vector]
	enabled  atomic.Int32
	noResize bool
	notice   [irqIndexes]*notice

	dead  atomic.Bool
	down  chan struct{} // closed with dead
	errMu sync.Mutex    // vectors is set under it
	err   error         // sticky

	mu     sync.Mutex // held over what sets the device up; the receiving goroutine does not take it
	closed bool
	space  space
	lock   *lockFile // of Options.Dir
	rungs  []rung

	mmu  sync.RWMutex // held over accesses to memory by the server's messages
	live []*memory    // changes under mu and mmu
}

var _ device.Device = (*Client)(nil)

// Dial connects to the server at path and learns what its device is. ctx bounds Dial alone.
func Dial(ctx context.Context, path string, o Options) (*Client, error) {
	if o.Name == "" {
		o.Name = "vfio-user:" + path
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	c := &Client{
		opt: o, path: path, gone: make(chan struct{}), down: make(chan struct{}), pending: map[uint16]*call{}, reading: true,
		info: device.Info{Name: o.Name, Body: "vfio-user", NUMANode: -1},
	}
	c.calls.New = newCall
	if o.Dir == "" && !o.Memfd {
		return nil, c.fault("open", errors.New("a directory for dma memory is needed"))
	}
	sock, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, c.fault("open", err)
	}
	if c.conn, err = newConn(sock.(*net.UnixConn)); err != nil {
		sock.Close()
		return nil, c.fault("open", err)
	}
	c.wg.Go(func() { c.receive(c.conn) })
	stop := context.AfterFunc(ctx, func() { c.drop(ctx.Err()) })
	err = c.learn()
	if err == nil {
		err = c.prepareMemory()
	}
	if !stop() && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		c.fail(c.fault("open", err))
		return nil, c.fault("open", errors.Join(err, c.finish(true)))
	}
	return c, nil
}

// learn exchanges versions and asks the server everything once.
func (c *Client) learn() error {
	if err := c.introduce(); err != nil {
		return err
	}
	k, err := c.ask(cmdDeviceInfo, func(b []byte) []byte { return appendDeviceInfo(b, deviceInfo{argsz: deviceInfoBytes}) }, nil)
	if err != nil {
		return err
	}
	info, err := decodeDeviceInfo(k.body)
	if err != nil {
		return err
	}
	if info.flags&devicePCI == 0 || info.regions <= regionConfig || info.irqs <= irqMSIX {
		return fmt.Errorf("not a pci device: flags %#x, %d regions, %d interrupt indexes: %w", info.flags, info.regions, info.irqs, device.ErrNotSupported)
	}
	for i := range uint32(regionConfig + 1) {
		if err := c.learnRegion(i); err != nil {
			return err
		}
	}
	if err := c.learnIRQs(info.irqs); err != nil {
		return err
	}
	return c.identify()
}

// introduce exchanges versions.
func (c *Client) introduce() error {
	v := version{major: protocolMajor, minor: protocolMinor, caps: &capabilities{
		MaxFDs: pointer(uint64(maxFDs)), MaxTransfer: pointer(uint64(maxTransfer)), MaxMaps: pointer(uint64(maxMaps)),
		PageSizes: pointer(uint64(pageSizes)), Twin: &twin{Supported: true}, Own: &ownCaps{},
	}}
	var encode error
	k, err := c.ask(cmdVersion, func(b []byte) []byte {
		b, encode = appendVersion(b, v)
		return b
	}, nil)
	if err := errors.Join(encode, err); err != nil {
		if errors.Is(err, eBUSY) {
			return c.whoHasIt()
		}
		return err
	}
	fds := k.fds
	k.fds = nil
	defer func() { closeAll(fds) }()
	r, err := decodeVersion(k.body)
	if err != nil {
		return err
	}
	if r.major != protocolMajor || r.minor > protocolMinor {
		return fmt.Errorf("the server speaks version %d.%d: %w", r.major, r.minor, device.ErrNotSupported)
	}
	c.caps = r.caps
	if r.caps != nil && r.caps.Own != nil && r.caps.Own.Node != nil {
		c.info.NUMANode = *r.caps.Own.Node
	}
	if c.info.IOVA = r.caps.ranges(); c.info.IOVA == nil {
		c.info.IOVA = slices.Clone(defaultIOVA)
	}
	if !r.caps.twin() {
		return nil
	}
	if i := r.caps.Twin.Index; i == nil || *i >= uint64(len(fds)) {
		return violation("a second socket that did not come")
	}
	i := *r.caps.Twin.Index
	fd := fds[i]
	fds = slices.Delete(fds, int(i), int(i)+1)
	if c.twin, err = fromFD(fd); err != nil {
		return err
	}
	c.wg.Go(func() { c.receive(c.twin) })
	return nil
}

// whoHasIt puts it into words that the server has a client.
func (c *Client) whoHasIt() error {
	server, owner := readLock(c.path + ".lock")
	if owner == 0 {
		return fmt.Errorf("the card at %s belongs to another process: %w", c.path, device.ErrBusy)
	}
	return fmt.Errorf("the card at %s, served by %s, belongs to %s: %w", c.path, process(server), process(owner), device.ErrBusy)
}

// identify reads what configuration space says about the device.
func (c *Client) identify() error {
	b := make([]byte, 64)
	if err := c.configRead(0, b); err != nil {
		return err
	}
	i := &c.info
	i.VendorID, i.DeviceID, i.Revision = le.Uint16(b), le.Uint16(b[2:]), b[8]
	i.Class, i.Subsys = le.Uint32(b[8:])>>8, le.Uint32(b[0x2c:])
	for bar := range 6 {
		if v := le.Uint32(b[cfgBars+4*bar:]); i.Regions[bar].Size > 0 && v&1 == 0 && v&8 != 0 {
			i.Regions[bar].Flags |= device.RegionPrefetchable
		}
	}
	return nil
}

// Info describes the device.
func (c *Client) Info() device.Info {
	i := c.info
	i.IOVA = slices.Clone(i.IOVA)
	return i
}

func (c *Client) fault(op string, err error) error {
	return &device.OpError{Op: op, Dev: c.opt.Name, Err: err}
}

// fail makes err the sticky error unless there is one, and ends every wait.
func (c *Client) fail(err error) {
	c.errMu.Lock()
	defer c.errMu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.dead.Store(true)
	close(c.down)
	for i := range c.vectors {
		if v := c.vectors[i].Load(); v != nil {
			v.expire()
		}
	}
}

// Err returns the sticky error, nil while the device is well.
func (c *Client) Err() error {
	c.errMu.Lock()
	defer c.errMu.Unlock()
	return c.err
}

// Lose sets the sticky error.
func (c *Client) Lose(err error) {
	if err == nil {
		err = device.ErrDeviceLost
	}
	c.fail(c.fault("use device", err))
}

// drop ends the connection: the server is gone, does not answer, or talks nonsense.
func (c *Client) drop(err error) {
	c.fail(c.fault("talk to card process", errors.Join(err, device.ErrDeviceLost)))
	c.pmu.Lock()
	defer c.pmu.Unlock()
	if !c.reading {
		return
	}
	c.reading = false
	c.conn.close()
	close(c.gone)
}

// isGone says whether the connection has ended.
func (c *Client) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// RemovalRequested is closed when the card process must let go of the card.
func (c *Client) RemovalRequested() <-chan struct{} { return c.notice[irqRequest].channel() }

// ErrorNotice is closed when the bus reported an error.
func (c *Client) ErrorNotice() <-chan struct{} { return c.notice[irqError].channel() }

// Reset resets the whole function; its maps and vectors have to be set up anew.
func (c *Client) Reset() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Load() {
		return c.Err()
	}
	err := c.detach()
	if _, e := c.ask(cmdReset, nil, nil); e != nil {
		err = errors.Join(err, e)
	}
	c.clearVectors()
	if err != nil {
		return c.fault("reset", err)
	}
	return nil
}

// detach ends every use the device makes of this process, as far as the server still answers.
func (c *Client) detach() error {
	err := c.disableVectors()
	for _, m := range c.live {
		err = errors.Join(err, c.unmap(m))
	}
	return errors.Join(err, c.writeState())
}

// Close takes bus mastering from the device, unmaps everything and lets it go; memory and its files are gone then.
func (c *Client) Close() error {
	lost := c.Err()
	c.fail(c.fault("use device", device.ErrClosed))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	err := c.stopBusMaster()
	err = errors.Join(err, c.detach())
	if lost != nil { // what else goes wrong follows from it
		err = nil
	}
	if err = errors.Join(err, c.finish(false)); err != nil {
		return c.fault("close", err)
	}
	return nil
}

// Detach leaves the device as it is, for a successor that dials with Options.Reattach: bus mastering, maps and the files
// of memory stay. To this process the device is closed.
func (c *Client) Detach() error {
	c.fail(c.fault("use device", device.ErrClosed))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if err := c.finish(true); err != nil {
		return c.fault("detach", err)
	}
	return nil
}

func (c *Client) stopBusMaster() error {
	var b [2]byte
	if err := c.configRead(cfgCommand, b[:]); err != nil {
		return err
	}
	b[0] &^= commandMaster
	return c.configWrite(cfgCommand, b[:])
}

// finish gives back what this process has. c has failed before; mu is held, or nobody else knows c yet.
func (c *Client) finish(keep bool) error {
	c.closed = true
	c.drop(device.ErrClosed)
	if c.twin != nil {
		c.twin.close()
	}
	for _, n := range c.notice {
		n.close()
	}
	c.wg.Wait()
	c.conn.drop()
	if c.twin != nil {
		c.twin.drop()
	}
	c.enabled.Store(0)
	for i := range c.vectors {
		if v := c.vectors[i].Swap(nil); v != nil {
			v.file.Close()
		}
	}
	err := c.releaseMemory(keep)
	c.rmu.Lock()
	defer c.rmu.Unlock()
	for i := range c.regions {
		err = errors.Join(err, c.regions[i].unmap())
	}
	return err
}
