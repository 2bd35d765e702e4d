package nixl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl/nixltest"
)

func TestCandidates(t *testing.T) {
	root := t.TempDir()
	file := func(path string) string {
		full := filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, nil, 0o600))
		return full
	}
	site := "venv/lib/python3.12/site-packages/"
	cu12 := file(site + ".nixl_cu12.mesonpy.libs/libnixl_capi.so")
	cu13 := file(site + ".nixl_cu13.mesonpy.libs/libnixl_capi.so")
	rocm := file(site + ".nixl_rocm.mesonpy.libs/libnixl_capi.so.0")
	bundled := file(site + "nixl_cu12.libs/libnixl_capi-0a1b2c.so")
	file(site + ".nixl_cu12.mesonpy.libs/libnixl.so")
	file(site + "other.libs/libnixl_capi.so")
	user := file("home/.local/lib/python3.11/site-packages/.nixl_cu12.mesonpy.libs/libnixl_capi.so")
	folder := filepath.Dir(cu12)
	empty := filepath.Join(root, "home")

	// What the machine has in the places that no variable names comes between.
	machine := len(candidates("", func(string) string { return "" })) - len(libraryNames)
	for _, tc := range []struct {
		name, option string
		env          map[string]string
		want         []string
		more         int
	}{
		{"an option is the only one", "/x/lib.so", map[string]string{PathVariable: "/y/lib.so"}, []string{"/x/lib.so"}, 0},
		{"so is the variable", "", map[string]string{PathVariable: "/y/lib.so", "VIRTUAL_ENV": root + "/venv"}, []string{"/y/lib.so"}, 0},
		{"a folder stands for the library in it", folder, nil, []string{cu12}, 0},
		{"with the versioned name", filepath.Dir(rocm), nil, []string{rocm}, 0},
		{"and for the name that is missed", empty, nil, []string{empty + "/libnixl_capi.so"}, 0},
		{"wheels, the newest CUDA first", "", map[string]string{"VIRTUAL_ENV": root + "/venv"}, []string{cu13, cu12, rocm, bundled}, machine + 2},
		{"the active environment before the user's", "", map[string]string{"HOME": root + "/home", "CONDA_PREFIX": root + "/venv"}, []string{cu13, cu12, rocm, bundled, user}, machine + 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := candidates(tc.option, func(name string) string { return tc.env[name] })
			require.Len(t, got, len(tc.want)+tc.more)
			for i, path := range tc.want {
				require.Equal(t, path, got[i].path)
			}
			if tc.more > 0 {
				require.Equal(t, "libnixl_capi.so.0", got[len(got)-2].path)
				require.Equal(t, "libnixl_capi.so", got[len(got)-1].path)
			}
		})
	}
}

func TestTestsAskForTheSameVariable(t *testing.T) { require.Equal(t, PathVariable, nixltest.Variable) }
