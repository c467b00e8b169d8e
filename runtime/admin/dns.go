package admin

import (
	"errors"
	"net/http"
)

// errNoZone is the error of a runtime that publishes nothing.
var errNoZone = errors.New("the configuration publishes no zone")

func (s *server) dns(*http.Request) (any, error) {
	if s.rt == nil {
		return nil, errNoRuntime
	}
	zone := s.rt.DNS()
	if zone == nil {
		return nil, errNoZone
	}
	return zone, nil
}
