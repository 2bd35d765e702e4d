package tilert

import "testing"

func TestAVersionIsOneLayout(t *testing.T) {
	seen := map[int]LayoutOptions{}
	for _, profile := range Profiles() {
		for _, want := range variants() {
			l, err := LayoutOf(profile, want)
			if err != nil {
				continue // a profile without that variant
			}
			if other, twice := seen[l.Version]; twice {
				t.Errorf("version %d is %+v and %+v", l.Version, other, want)
			}
			seen[l.Version] = want
			got, o, ok := OfVersion(l.Version)
			if !ok || got.Profile != profile || got.Layers != l.Layers || got.KVBytes != l.KVBytes || o != want {
				t.Errorf("OfVersion(%d) = %+v, %+v, %v; want %+v, %+v", l.Version, got, o, ok, l, want)
			}
		}
	}
	if len(seen) != 24 { // two caches of three profiles by three types, and glm5 without its draft layer
		t.Errorf("%d versions, want 24", len(seen))
	}
	if l, _, ok := OfVersion(Tiny.Version); !ok || l.Profile != Tiny.Profile {
		t.Errorf("OfVersion(%d) = %+v, %v", Tiny.Version, l, ok)
	}
	if _, _, ok := OfVersion(7); ok {
		t.Error("version 7 is of no model")
	}
}
