package sim

import (
	"encoding/json"
	"math"
	"slices"
	"sort"
	"strings"
)

// schema is the part of JSON Schema that decides what an example value looks like.
type schema struct {
	Type       json.RawMessage   `json:"type"` // a name, or a list of them
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Items      *schema           `json:"items"`
	Enum       []any             `json:"enum"`
	Const      any               `json:"const"`
	Default    any               `json:"default"`
	AnyOf      []schema          `json:"anyOf"`
	OneOf      []schema          `json:"oneOf"`
	AllOf      []schema          `json:"allOf"`
	Minimum    *float64          `json:"minimum"`
	Maximum    *float64          `json:"maximum"`
	MinLength  int               `json:"minLength"`
	MaxLength  *int              `json:"maxLength"`
	MinItems   int               `json:"minItems"`
}

func parseSchema(raw json.RawMessage) (s schema) {
	_ = json.Unmarshal(raw, &s) // one that cannot be read asks for nothing
	return s
}

// names returns the properties that an example has: the required ones, and others as well if nothing is required.
func (s schema) names() []string {
	if len(s.Required) > 0 {
		return s.Required
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (s schema) property(name string) schema { return s.Properties[name] }

// kind returns the type that an example has; the first one that is not null.
func (s schema) kind() string {
	var one string
	var list []string
	if json.Unmarshal(s.Type, &one) != nil && json.Unmarshal(s.Type, &list) == nil {
		if i := slices.IndexFunc(list, func(k string) bool { return k != "null" }); i >= 0 {
			one = list[i]
		} else if len(list) > 0 {
			one = list[0]
		}
	}
	switch {
	case one != "":
		return one
	case s.Properties != nil:
		return "object"
	case s.Items != nil:
		return "array"
	}
	return "string"
}

// example returns a value that fits the schema; word is used for text.
func (s schema) example(word string) any {
	for _, choice := range [][]schema{s.AnyOf, s.OneOf, s.AllOf} {
		if i := slices.IndexFunc(choice, func(c schema) bool { return c.kind() != "null" }); i >= 0 && len(s.Type) == 0 {
			return choice[i].example(word)
		}
	}
	switch {
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Default != nil:
		return s.Default
	}
	switch s.kind() {
	case "integer":
		return int(math.Ceil(s.within(7)))
	case "number":
		return s.within(1.5)
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		list := make([]any, max(1, s.MinItems))
		for i := range list {
			if list[i] = any(word); s.Items != nil {
				list[i] = s.Items.example(word)
			}
		}
		return list
	case "object":
		out := map[string]any{}
		for _, name := range s.names() {
			out[name] = s.property(name).example(word)
		}
		return out
	}
	word += strings.Repeat("x", max(0, s.MinLength-len(word)))
	if s.MaxLength != nil {
		word = clip(word, *s.MaxLength)
	}
	return word
}

// within moves x between minimum and maximum.
func (s schema) within(x float64) float64 {
	if s.Minimum != nil {
		x = max(x, *s.Minimum)
	}
	if s.Maximum != nil {
		x = min(x, *s.Maximum)
	}
	return x
}
