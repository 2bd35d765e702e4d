package probe

import (
	"sync"

	"pd-router/internal/tilert"
)

// layoutName says in words what a layout_version is, "" when this version does not know it (spec 2.4).
func layoutName(version int) string { return layoutNames()[version] }

var layoutNames = sync.OnceValue(func() map[int]string {
	names := map[int]string{tilert.Tiny.Version: tilert.Tiny.Profile + ", of simulated nodes"}
	for _, profile := range tilert.Profiles() {
		for _, dtype := range []string{"fp8_ds_mla", "bf16", "fp8_rocm"} {
			for _, o := range []tilert.LayoutOptions{{}, {TiledKI: true}, {NoMTP: true}, {NoMTP: true, TiledKI: true}} {
				o.DType = dtype
				l, err := tilert.LayoutOf(profile, o)
				if err != nil {
					continue // a profile without that variant
				}
				name := profile + " " + dtype
				if o.TiledKI {
					name += ", tiled KI"
				}
				if o.NoMTP {
					name += ", without draft layer"
				}
				names[l.Version] = name
			}
		}
	}
	return names
})
