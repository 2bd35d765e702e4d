package staging

import (
	"fmt"

	"pd-router/internal/tilert"
)

// LayoutOf returns the layout that a node's hello means by its version: what an arena in front of that node needs. Versions of models that
// this program does not know are an error.
func LayoutOf(h *tilert.Hello) (tilert.Layout, error) {
	l, _, ok := tilert.OfVersion(h.LayoutVersion)
	if !ok {
		return tilert.Layout{}, fmt.Errorf("staging: layout_version %d is of a model that this program does not know", h.LayoutVersion)
	}
	return l, checkGeneration(l, h.Protocol)
}

// checkGeneration refuses a node whose protocol means another cache by the same version: dsv32 has one layer more with protocol 1, and what
// came from a protocol 2 sender lacks it (spec 2.4).
func checkGeneration(l tilert.Layout, p tilert.Protocol) error {
	if p != tilert.Protocol1 {
		return nil
	}
	was, err := tilert.LayoutOf(l.Profile, tilert.LayoutOptions{Protocol: p})
	is, err2 := tilert.LayoutOf(l.Profile, tilert.LayoutOptions{})
	if err != nil || err2 != nil || was.Layers == is.Layers {
		return nil
	}
	return &tilert.HelloError{
		Field: "protocol_version", Got: fmt.Sprintf("%d, with which %s has %d layers", p, l.Profile, was.Layers),
		Want: fmt.Sprintf("%d, with %d", tilert.Protocol2, is.Layers),
	}
}
