package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"pd-router/internal/config"
	"pd-router/internal/status"
)

// longestSetting is how much of a value is shown.
const longestSetting = 120

// secret finds the flags whose value is nobody's business. None of today's is one; the rule is for those to come.
var secret = regexp.MustCompile(`key|secret|password|credential|auth`)

// settings are all flags with the values in force, for the status page.
func settings(cfg config.Config) []status.Setting {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Declare(flags)
	v := reflect.ValueOf(cfg)
	var out []status.Setting
	flags.VisitAll(func(f *pflag.Flag) {
		field := v.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, strings.ReplaceAll(f.Name, "-", "")) })
		if !field.IsValid() {
			panic("BUG: a flag without a field: " + f.Name)
		}
		value := settingText(field.Interface())
		switch {
		case value != "" && secret.MatchString(f.Name):
			value = "***"
		case f.Name == "chat-template" && strings.ContainsAny(value, "\n{"):
			value = fmt.Sprintf("(given literally, %d bytes)", len(cfg.ChatTemplate))
		}
		out = append(out, status.Setting{Flag: "--" + f.Name, Value: value, Default: value == defaultText(f, field.Interface())})
	})
	return out
}

// settingText is a value as its flag takes it; "" for one that is unset.
func settingText(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) > longestSetting {
			return strings.ToValidUTF8(v[:longestSetting], "") + "…"
		}
		return v
	case json.RawMessage:
		return settingText(string(v))
	case time.Duration:
		return strconv.FormatFloat(v.Seconds(), 'f', -1, 64)
	case *float64:
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', -1, 64)
	case *int:
		if v == nil {
			return ""
		}
		return strconv.Itoa(*v)
	case int64: // a size, of which none is 0
		if v == 0 {
			return ""
		}
	case []config.Node:
		return joined(v, " ")
	case []config.ArenaSize:
		return joined(v, ",")
	}
	return fmt.Sprint(v)
}

func joined[T fmt.Stringer](values []T, by string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, by)
}

// defaultText is the flag's default in the same form: sizes are declared in units.
func defaultText(f *pflag.Flag, v any) string {
	if _, bytes := v.(int64); bytes {
		if n, err := config.ParseSize(f.DefValue); err == nil {
			return fmt.Sprint(n)
		}
	}
	return f.DefValue
}
