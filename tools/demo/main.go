package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"splicenic/tools/netlab"
)

// Config is how the demo is shown.
type Config struct {
	Requests int               // 1 to MaxRequests
	Memory   bool              // in memory in any case
	Live     io.Writer         // requests as they end; nil: not at all
	Note     func(text string) // told why there are no namespaces
}

// Main runs the demo the best way this process may. An ordinary user's process runs itself again inside a user
// namespace: then the report is nil, the other process has shown everything, and code is its exit code. The error says,
// beside what could not be done, that a request went wrong.
func Main(ctx context.Context, cfg Config) (r *Report, code int, err error) {
	if err := checkRequests(cfg.Requests); err != nil {
		return nil, 0, err
	}
	why := "asked for"
	if !cfg.Memory {
		code, done, err := netlab.Enter()
		if done && err == nil {
			return nil, code, nil
		}
		if err == nil {
			r, err = Run(ctx, cfg.Requests, cfg.Live)
		}
		if !errors.Is(err, netlab.ErrNotPermitted) {
			return r, 0, r.verdict(err)
		}
		why = err.Error()
		cfg.Note("no network namespaces here, the demo runs in memory: " + why)
	}
	r, err = RunInMemory(ctx, cfg.Requests, why, cfg.Live)
	return r, 0, r.verdict(err)
}

// verdict is an error where a request went wrong.
func (r *Report) verdict(err error) error {
	if r != nil && r.Requests.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d requests went wrong", r.Requests.Failed, r.Requests.Total))
	}
	return err
}
