package sim

import (
	"fmt"

	"pd-router/internal/tilert"
)

// shape returns the layout and the protocol that the options name.
func shape(profile, dtype, generation string) (tilert.Layout, tilert.Protocol, error) {
	protocol := tilert.Protocol2
	switch generation {
	case "N":
	case "V5":
		protocol = tilert.Protocol1
	default:
		return tilert.Layout{}, 0, fmt.Errorf("--generation=%s: want N or V5", generation)
	}
	if profile == tilert.Tiny.Profile {
		return tilert.Tiny, protocol, nil
	}
	l, err := tilert.LayoutOf(profile, tilert.LayoutOptions{DType: dtype, Protocol: protocol})
	return l, protocol, err
}
