package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// doctor examines what is around the card, and answers with a list of doctor.Finding when that is over. Who asks while
// others wait for an examination waits for the same one.
func (s *server) doctor(r *http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	// What nobody reads keeps the server from noticing that who asked has gone.
	switch _, err := io.Copy(io.Discard, r.Body); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%w: %v", errSlow, bodyTimeout)
	case err != nil:
		return nil, fmt.Errorf("%w: %v", errUsage, err)
	}
	return s.rt.Examine(r.Context())
}
