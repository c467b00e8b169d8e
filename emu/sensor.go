package emu

import "splicenic/regs"

// Sensors are what the card measures.
type Sensors struct {
	Temperature    int32  // millidegree Celsius
	Vccint, Vccaux uint32 // millivolt
}

// atRest is a card on a desk, as the registers' reset values have it.
var atRest = Sensors{Temperature: 45_000, Vccint: 1000, Vccaux: 1800}

// SetSensors sets what the card measures. It stays over resets and boots.
func (c *Card) SetSensors(s Sensors) {
	c.lock()
	defer c.mu.Unlock()
	c.sensors = s
	c.measure()
	c.wake.ring()
}

// measure stores what the sensors say.
func (c *Card) measure() {
	c.reg.Set(regs.SensorTemperature, uint32(c.sensors.Temperature)&regs.SensorTemperatureValueMask)
	c.reg.Set(regs.SensorVccint, c.sensors.Vccint&regs.SensorVccintValueMask)
	c.reg.Set(regs.SensorVccaux, c.sensors.Vccaux&regs.SensorVccauxValueMask)
	c.watchSensors()
}

// watchSensors sets the alarms whose condition holds: one that was cleared comes back. When a condition begins, the host
// hears of it through the interface, if there is one.
func (c *Card) watchSensors() {
	now := c.alarms()
	c.reg.Set(regs.SensorAlarm, c.reg.Get(regs.SensorAlarm)|now)
	begun := now &^ c.alarming
	c.alarming = now
	if begun != 0 && !c.run.shellOnly() {
		c.host.Cause(regs.HostifCauseSensorMask)
	}
}

// alarms are the ones whose condition holds.
func (c *Card) alarms() (alarm uint32) {
	limit := signed24(c.reg.Get(regs.SensorTemperatureLimit))
	if signed24(c.reg.Get(regs.SensorTemperature)) > limit {
		alarm |= regs.SensorAlarmTemperatureMask
	}
	if c.reg.Get(regs.SensorVccint) < c.reg.Get(regs.SensorVccintLow) {
		alarm |= regs.SensorAlarmVccintMask
	}
	if c.reg.Get(regs.SensorVccaux) < c.reg.Get(regs.SensorVccauxLow) {
		alarm |= regs.SensorAlarmVccauxMask
	}
	return alarm
}

func signed24(w uint32) int32 { return int32(w<<8) >> 8 }
