package sim

import (
	"fmt"

	"pd-router/internal/tilert"
)

// tinyProfile is a small cache of our own: a layer for each of eight ranks and 5 KB a token, so that long prompts move
// in no time. Its version is far from those of real models.
var tinyProfile = tilert.Layout{Profile: "tiny", Layers: 8, Version: 9008, KVBytes: 528, PEBytes: 128}

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
	if profile == tinyProfile.Profile {
		return tinyProfile, protocol, nil
	}
	l, err := tilert.LayoutOf(profile, tilert.LayoutOptions{DType: dtype, Protocol: protocol})
	return l, protocol, err
}
