package nixl

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// PathVariable is the environment variable that names the library, a file or its folder, when Options.Path is empty.
const PathVariable = "PD_ROUTER_NIXL_LIBRARY"

// libraryNames are what the C library is called: with the version of its interface (generation 3), and without.
var libraryNames = []string{"libnixl_capi.so.0", "libnixl_capi.so"}

// candidate is one thing to give to dlopen, with the reason for trying it.
type candidate struct {
	path string
	from string
}

// candidates lists what to try, best first. A path that somebody asked for, by option or environment, is the only one: loading
// another library than the one asked for would hide the mistake. Nothing here runs Python.
func candidates(option string, getenv func(string) string) []candidate {
	for _, asked := range []struct{ path, from string }{{option, "option"}, {getenv(PathVariable), PathVariable}} {
		if asked.path != "" {
			return inside(asked.path, asked.from)
		}
	}
	var out []candidate
	for _, site := range sitePackages(getenv) {
		out = append(out, wheelsIn(site)...)
	}
	for _, name := range libraryNames {
		out = append(out, candidate{name, "the dynamic linker's path"})
	}
	return out
}

// inside turns a file or folder into candidates. Of a folder the names that exist are taken; if none does, the last one, so that
// the error of dlopen names the file that is missing.
func inside(path, from string) []candidate {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []candidate{{path, from}}
	}
	for _, name := range libraryNames {
		file := filepath.Join(path, name)
		if _, err := os.Stat(file); err == nil {
			return []candidate{{file, from}}
		}
	}
	return []candidate{{filepath.Join(path, libraryNames[len(libraryNames)-1]), from}}
}

// sitePackages lists the package folders of the Pythons of this machine: the active environment first, then the usual places.
func sitePackages(getenv func(string) string) []string {
	var patterns []string
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if root := getenv(variable); root != "" {
			patterns = append(patterns, filepath.Join(root, "lib/python3*/site-packages"))
		}
	}
	if home := getenv("HOME"); home != "" {
		patterns = append(patterns, filepath.Join(home, ".local/lib/python3*/site-packages"))
	}
	for _, root := range []string{"/usr/local/lib", "/usr/lib", "/opt/*/lib"} {
		patterns = append(patterns, root+"/python3*/dist-packages", root+"/python3*/site-packages")
	}
	var out []string
	for _, p := range patterns {
		found, _ := filepath.Glob(p) // the only error is a bad pattern: a root with brackets, which then is not searched
		out = append(out, found...)
	}
	return out
}

// wheelsIn finds the library of the NIXL wheels (nixl-cu13, nixl-cu12, others) in one package folder: in the folder that the
// build leaves, or among the libraries that were bundled with it.
func wheelsIn(site string) []candidate {
	var files []string
	for _, pattern := range []string{".nixl*.mesonpy.libs/libnixl_capi.so*", "nixl*.libs/libnixl_capi*.so*"} {
		found, _ := filepath.Glob(filepath.Join(site, pattern))
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(wheelRank(a), wheelRank(b)) })
		files = append(files, found...)
	}
	out := make([]candidate, len(files))
	for i, f := range files {
		out[i] = candidate{f, "Python packages"}
	}
	return out
}

// wheelRank puts the newest CUDA first. For host memory any will do.
func wheelRank(file string) int {
	for i, flavour := range []string{"_cu13", "_cu12"} {
		if strings.Contains(file, flavour) {
			return i
		}
	}
	return 2
}
