package openai

import "fmt"

// What a schema may cost the node that compiles it.
const (
	maxSchemaDepth   = 64
	maxSchemaObjects = 1000
	maxSchemaEnums   = 10000
)

// grammar resolves response_format, regex and ebnf to the one constraint that counts: json_object, then json_schema, regex, ebnf,
// structural_tag. Other types of response_format ("text") constrain nothing.
func (c *checking) grammar() *Error {
	format := c.get(fieldResponseFormat)
	var tag []byte
	if format != nil && !falsy(format) {
		if kindOf(format) != kindObject {
			return invalidAs(TypeInvalidGrammar, "response_format", format, "an object")
		}
		switch formatType(format) {
		case "json_object":
			return c.constrain("response_format", format, "json_object", []byte("null"))
		case "json_schema":
			schema, why := schemaOf(format)
			if why != "" {
				return invalidAs(TypeInvalidGrammar, "response_format", format, why)
			}
			return c.constrain("response_format", format, "json_schema", schema)
		case "structural_tag":
			tag = format
		}
	}
	for _, f := range [...]struct {
		id   fieldID
		name string
	}{{fieldRegex, "regex"}, {fieldEBNF, "ebnf"}} {
		raw := c.get(f.id)
		if raw == nil || falsy(raw) {
			continue
		}
		if kindOf(raw) != kindString {
			return invalidAs(TypeInvalidGrammar, f.name, raw, "a string")
		}
		if _, whole := unquote(raw); !whole {
			return invalidAs(TypeInvalidGrammar, f.name, raw, "text: half of a surrogate pair is none")
		}
		return c.constrain(f.name, raw, f.name, raw)
	}
	if tag != nil {
		return c.constrain("response_format", tag, "structural_tag", tag)
	}
	return nil
}

// constrain sets the request's grammar, unless its value is too large.
func (c *checking) constrain(field string, sent []byte, grammarType string, value []byte) *Error {
	if kindOf(value) == kindObject {
		var size schemaSize
		if _, why := size.add(value, 0, 1); why != "" {
			return invalidAs(TypeInvalidGrammar, field, sent, why)
		}
	}
	g := make([]byte, 0, len(grammarType)+len(value)+20)
	g = append(append(g, `{"type":"`...), grammarType...)
	g = append(append(g, `","value":`...), value...)
	c.Grammar = append(g, '}')
	c.need(NeedGrammar, want{field, sent, false})
	return nil
}

func formatType(format []byte) string {
	raw, ok := memberOf(format, "type")
	if !ok || kindOf(raw) != kindString {
		return ""
	}
	s, _ := unquote(raw)
	return s
}

// schemaOf is json_schema.schema of a response_format, or what it wanted.
func schemaOf(format []byte) (schema []byte, want string) {
	if outer, ok := memberOf(format, "json_schema"); ok && kindOf(outer) == kindObject {
		if schema, ok = memberOf(outer, "schema"); ok {
			switch kindOf(schema) {
			case kindObject, kindBool:
				return schema, ""
			}
		}
	}
	return nil, "an object json_schema.schema"
}

// schemaSize counts what makes a schema expensive. Its walk reads the schema once and ends at the first limit.
type schemaSize struct{ objects, enums int }

// add counts the value at b[i], whose own brackets are nested depth deep, and returns the index after it; or what it wanted when a
// limit is passed.
func (s *schemaSize) add(b []byte, i, depth int) (end int, want string) {
	object := b[i] == '{'
	if !object && b[i] != '[' {
		end, _ = scanValue(b, i, 0)
		return end, ""
	}
	if depth > maxSchemaDepth {
		return 0, fmt.Sprintf("a schema nested at most %d deep", maxSchemaDepth)
	}
	if object {
		if s.objects++; s.objects > maxSchemaObjects {
			return 0, fmt.Sprintf("a schema of at most %d objects", maxSchemaObjects)
		}
	}
	for i = skipSpace(b, i+1); b[i] != '}' && b[i] != ']'; {
		var key []byte
		if object {
			key, i = keyAt(b, i)
		}
		switch {
		case object && sameKey(key, "enum"):
			i, want = s.addEnum(b, i)
		case object && (sameKey(key, "const") || sameKey(key, "examples") || sameKey(key, "default")): // data, not schema
			i, _ = scanValue(b, i, 0)
		default:
			i, want = s.add(b, i, depth+1)
		}
		if want != "" {
			return 0, want
		}
		if i = skipSpace(b, i); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return i + 1, ""
}

// addEnum counts the values of an enum and returns the index after it.
func (s *schemaSize) addEnum(b []byte, i int) (end int, want string) {
	end, _ = scanValue(b, i, 0)
	if b[i] == '[' {
		eachElement(b[i:end], func([]byte) bool {
			s.enums++
			return s.enums <= maxSchemaEnums
		})
	}
	if s.enums > maxSchemaEnums {
		return 0, fmt.Sprintf("a schema of at most %d enum values", maxSchemaEnums)
	}
	return end, ""
}
