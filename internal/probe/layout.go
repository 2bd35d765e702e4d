package probe

import "pd-router/internal/tilert"

// layoutName says in words what a layout_version is, "" when this version does not know it (spec 2.4).
func layoutName(version int) string {
	l, o, ok := tilert.OfVersion(version)
	switch {
	case !ok:
		return ""
	case version == tilert.Tiny.Version:
		return l.Profile + ", of simulated nodes"
	}
	name := l.Profile + " " + o.DType
	if o.TiledKI {
		name += ", tiled KI"
	}
	if o.NoMTP {
		name += ", without draft layer"
	}
	return name
}
