package serving

import (
	"net/http"
	"net/http/pprof"
)

// ProfilesPath is below what the profiles are served.
const ProfilesPath = "/debug/pprof/"

// Profiles serves the profiles of the process at [ProfilesPath] and below, for `go tool pprof`. They tell what the process does
// and hold parts of its command line and memory: they are not for everybody.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(ProfilesPath, pprof.Index)
	mux.HandleFunc(ProfilesPath+"cmdline", pprof.Cmdline)
	mux.HandleFunc(ProfilesPath+"profile", pprof.Profile)
	mux.HandleFunc(ProfilesPath+"symbol", pprof.Symbol)
	mux.HandleFunc(ProfilesPath+"trace", pprof.Trace)
	return mux
}
