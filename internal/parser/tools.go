package parser

import (
	"encoding/json"
	"strings"
)

// toolset is what the request says about its tools. It is read when the first call comes: most replies have none.
type toolset struct {
	raw    json.RawMessage
	loaded bool
	byName map[string]*tool
}

func (s *toolset) load() {
	if s.loaded {
		return
	}
	s.loaded = true
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	// An entry of another shape leaves a zero element behind; the engine has already judged the request.
	_ = json.Unmarshal(s.raw, &list)
	s.byName = make(map[string]*tool, len(list))
	for _, e := range list {
		if f := e.Function; f.Name != "" && s.byName[f.Name] == nil {
			s.byName[f.Name] = &tool{raw: f.Parameters}
		}
	}
}

// any says whether names of tools are known.
func (s *toolset) any() bool {
	s.load()
	return len(s.byName) > 0
}

// find returns the tool of that name, or nil.
func (s *toolset) find(name string) *tool {
	s.load()
	return s.byName[name]
}

// clean takes argument markers off the end of a name, where that makes it the name of a tool (spec 7.3).
func (s *toolset) clean(name string) string {
	bare := name
	for {
		bare = strings.TrimSpace(bare)
		switch {
		case strings.HasSuffix(bare, argValueClose):
			bare = strings.TrimSuffix(bare, argValueClose)
		case strings.HasSuffix(bare, argKeyClose):
			bare = strings.TrimSuffix(bare, argKeyClose)
		case s.find(bare) != nil:
			return bare
		default:
			return name
		}
	}
}

// fused splits text that is the name of a tool and a key without <arg_key> between them (spec 7.3). Where several
// names fit, one whose schema has the key goes before one whose schema has not, then the longest. A text that is a
// name as a whole has no key in it.
func (s *toolset) fused(text string) (name, key string, ok bool) {
	text = strings.TrimSpace(text)
	if s.find(text) != nil {
		return "", "", false
	}
	declared := false
	for n, t := range s.byName {
		rest, fits := strings.CutPrefix(text, n)
		if rest = strings.TrimSpace(rest); !fits || rest == "" || strings.Contains(rest, "<") {
			continue
		}
		has := t.has(rest)
		if !ok || has && !declared || has == declared && len(n) > len(name) {
			name, key, ok, declared = n, rest, true, has
		}
	}
	return name, key, ok
}

// tool is the parameters schema of one tool, read when the tool is first called. A nil tool knows no properties.
type tool struct {
	raw   json.RawMessage
	root  map[string]any // the schema
	props map[string]any // its properties
	kinds map[string]kinds
}

func (t *tool) load() {
	if t.kinds != nil {
		return
	}
	t.kinds = map[string]kinds{}
	if len(t.raw) == 0 {
		return
	}
	d := json.NewDecoder(strings.NewReader(string(t.raw)))
	d.UseNumber() // an enum of 3 and one of 3.0 are different types
	if d.Decode(&t.root) != nil {
		t.root = nil
	}
	schema := t.root
	for range maxRefs {
		ref, ok := schema["$ref"].(string)
		if !ok {
			break
		}
		schema = t.resolve(ref)
	}
	t.props, _ = schema["properties"].(map[string]any)
}

// has says whether the schema declares that property.
func (t *tool) has(key string) bool {
	if t == nil {
		return false
	}
	t.load()
	_, ok := t.props[key]
	return ok
}

// declares says whether the schema declares any property.
func (t *tool) declares() bool {
	if t == nil {
		return false
	}
	t.load()
	return len(t.props) > 0
}

// kind returns the types that the schema allows for a property: a string when it is unknown.
func (t *tool) kind(key string) kinds {
	if t == nil {
		return kindString
	}
	t.load()
	k, ok := t.kinds[key]
	if ok {
		return k
	}
	schema, ok := t.props[key]
	if !ok {
		return kindString // not remembered: keys that the model makes up must not fill the memory
	}
	budget := maxSchemas
	k = t.types(schema, maxRefs, &budget)
	t.kinds[key] = k
	return k
}

// A schema may refer to itself and may branch at every step; these bounds end the walk. Beyond them: a string.
const (
	maxRefs    = 16
	maxSchemas = 256
)

// types collects the types that a schema names (spec 7.2 T1): "type", the members of "enum" and all branches. A schema
// that names none, or that is no object, is a string. References within the tool's own parameters are followed.
func (t *tool) types(schema any, depth int, budget *int) (k kinds) {
	m, ok := schema.(map[string]any)
	if *budget--; !ok || depth == 0 || *budget < 0 {
		return kindString
	}
	switch v := m["type"].(type) {
	case string:
		k |= kindOf(v)
	case []any:
		for _, e := range v {
			if s, ok := e.(string); ok {
				k |= kindOf(s)
			}
		}
	}
	members, _ := m["enum"].([]any)
	for _, e := range members {
		k |= kindOfValue(e)
	}
	for _, field := range []string{"anyOf", "oneOf", "allOf"} {
		branches, _ := m[field].([]any)
		for _, b := range branches {
			k |= t.types(b, depth-1, budget)
		}
	}
	if ref, ok := m["$ref"].(string); ok {
		if target := t.resolve(ref); target != nil {
			k |= t.types(target, depth-1, budget)
		}
	}
	if k == 0 {
		k = kindString
	}
	return k
}

// resolve returns the object that a reference such as #/$defs/Point means, or nil.
func (t *tool) resolve(ref string) map[string]any {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	at := t.root
	for name := range strings.SplitSeq(path, "/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		at, _ = at[name].(map[string]any)
	}
	return at
}
