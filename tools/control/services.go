package control

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"splicenic/runtime/view"
)

// Rates asks for services twice, and returns the second answer with what came in a second in between.
func (c *Client) Rates(ctx context.Context, interval time.Duration) (json.RawMessage, view.Table, error) {
	query := url.Values{"traffic": {"1"}}
	var before, after view.Table
	if _, err := c.Get(ctx, "services", query, &before); err != nil {
		return nil, after, err
	}
	wait := time.NewTimer(interval)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil, after, ctx.Err()
	}
	if _, err := c.Get(ctx, "services", query, &after); err != nil {
		return nil, after, err
	}
	rates(&before, &after)
	doc, err := json.Marshal(after)
	return doc, after, err
}

// rates sets the rates of after, by the card's own clock.
func rates(before, after *view.Table) {
	seconds := float64(after.Tick-before.Tick) / 1000
	if seconds == 0 {
		seconds = 0.001 // the clock's step
	}
	was := map[string]view.Traffic{}
	each := func(t *view.Table, f func(key string, traffic view.Traffic, rate **view.Rate)) {
		for i := range t.Services {
			s := &t.Services[i]
			f(s.Name, s.Traffic, &s.Rate)
			for g := range s.Groups {
				for k := range s.Groups[g].Servers {
					x := &s.Groups[g].Servers[k]
					f(s.Name+" "+x.Address, x.Traffic, &x.Rate)
				}
			}
		}
	}
	each(before, func(key string, traffic view.Traffic, _ **view.Rate) { was[key] = traffic })
	each(after, func(key string, traffic view.Traffic, rate **view.Rate) {
		then, ok := was[key]
		if !ok { // it was not there: nobody knows since when it is
			then = traffic
		}
		*rate = traffic.Rate(then, seconds)
	})
}
