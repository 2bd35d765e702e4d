package tilert

// OfVersion returns the layout that a hello means by its layout_version, with the options that make it (spec 2.4). ok is false for a model
// that this program does not know. One pair shares a version, dsv32 of either protocol: it is the form of Protocol2 that is returned.
func OfVersion(version int) (l Layout, o LayoutOptions, ok bool) {
	if version == Tiny.Version {
		return Tiny, LayoutOptions{}, true
	}
	for _, profile := range Profiles() {
		for _, o := range variants() {
			// An error is a profile without that variant.
			if l, err := LayoutOf(profile, o); err == nil && l.Version == version {
				return l, o, true
			}
		}
	}
	return Layout{}, LayoutOptions{}, false
}

// variants are the options that a version tells apart.
func variants() []LayoutOptions {
	var all []LayoutOptions
	for _, dtype := range []string{"fp8_ds_mla", "bf16", "fp8_rocm"} {
		for _, tiled := range []bool{false, true} {
			for _, noMTP := range []bool{false, true} {
				all = append(all, LayoutOptions{DType: dtype, TiledKI: tiled, NoMTP: noMTP})
			}
		}
	}
	return all
}
