package admin

import "net/http"

// BootHandler answers for a card without a runtime that somebody lets boot.
func BootHandler(src Source, boots Boots) http.Handler { return handler(src, nil, boots) }
