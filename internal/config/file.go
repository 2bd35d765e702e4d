package config

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
)

// file is a config file as strings, the form that flags and variables have.
type file struct {
	path   string
	values map[string][]string // by flag name; a key without a value is not in it
}

// separator divides keys from those of nested tables inside viper; no real key holds it, so a dot in a key stays a dot.
const separator = "\x00"

// readFile reads the file at path. An unknown key is an error: a setting that silently does nothing is worse.
func readFile(path string) (file, error) {
	fail := func(text string) (file, error) {
		return file{}, &Error{Setting: assignment(configFlag, path), Text: text}
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".toml", ".json":
	default:
		return fail("want a file that ends in .yaml, .yml, .toml or .json")
	}
	v := viper.NewWithOptions(viper.KeyDelimiter(separator))
	v.SetConfigFile(path)
	if err := v.ReadInConfig(); err != nil {
		return fail(oneLine(err.Error()))
	}
	out := file{path: path, values: map[string][]string{}}
	keys := v.AllKeys()
	slices.Sort(keys) // so that of several mistakes always the same one is told
	for _, key := range keys {
		name, _, nested := strings.Cut(key, separator)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name && name != configFlag })
		if i < 0 {
			return fail("unknown key " + strconv.Quote(name) + "; keys are the flags without dashes in front, such as queue-timeout")
		}
		values, err := words(&fields[i], v.Get(key))
		if nested || err != nil {
			return file{}, &Error{Setting: "--" + name, Source: path, Text: errSingle.Error()}
		}
		if values != nil {
			out.values[name] = values
		}
	}
	return out, nil
}

// words gives a value of the file as it would stand on the command line; nil for a key without a value.
func words(f *field, value any) ([]string, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case []any:
		if !f.many {
			return nil, errSingle
		}
		var all []string
		for _, item := range v {
			s, ok := scalar(item)
			if !ok {
				return nil, errSingle
			}
			all = append(all, s)
		}
		return all, nil
	}
	s, ok := scalar(value)
	if !ok {
		return nil, errSingle
	}
	if f.many {
		return strings.Fields(s), nil
	}
	return []string{s}, nil
}

// scalar writes a single value as an operator would.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		if math.Abs(v) < 1<<53 {
			return strconv.FormatFloat(v, 'f', -1, 64), true // JSON has no integers: 64e6 must not come out as 6.4e+07
		}
		return strconv.FormatFloat(v, 'g', -1, 64), true
	}
	return "", false
}
