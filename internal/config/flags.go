package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Flags are the settings as declared on the flag set of one command.
type Flags struct {
	values []*flagValue // one for each row of fields, in that order
}

// Declare adds every setting to fs. After fs was parsed, Load gives the Config.
func Declare(fs *pflag.FlagSet) *Flags {
	fs.SortFlags = false
	f := &Flags{values: make([]*flagValue, len(fields))}
	for i := range fields {
		v := &flagValue{field: &fields[i]}
		f.values[i] = v
		flag := fs.VarPF(v, v.field.name, "", v.field.help)
		if v.field.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	return f
}

// flagValue keeps what the command line says, unread: reading is the same for all sources and comes later.
type flagValue struct {
	field *field
	given []string // nil when the flag was not used
}

// Set takes one value; where a flag takes one, its last use counts.
func (v *flagValue) Set(s string) error {
	if !v.field.many {
		v.given = v.given[:0]
	}
	v.given = append(v.given, s)
	return nil
}

// String is the default, for --help.
func (v *flagValue) String() string {
	if v.field == nil { // pflag asks the zero value too
		return ""
	}
	return v.field.def
}

// Type is the word for the value in --help.
func (v *flagValue) Type() string { return v.field.kind }

// ExpandArgs turns "--decode a b c" into "--decode=a --decode=b --decode=c" for the flags of fs that take several
// values, because pflag knows one value for each flag. The values end at the next argument that begins with "-".
// Everything else stays as it is. A flag that is followed by another flag of fs where its value should be is an
// error: "--model-path $UNSET --parser none" would otherwise take "--parser" for the path.
func ExpandArgs(fs *pflag.FlagSet, args []string) ([]string, error) {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(out, args[i:]...), nil
		}
		name, isLong := strings.CutPrefix(arg, "--")
		var flag *pflag.Flag
		if isLong { // a name with "=" in it is never found
			flag = fs.Lookup(name)
		}
		if flag == nil || flag.NoOptDefVal != "" {
			out = append(out, arg)
			continue
		}
		values := args[i+1:]
		if len(values) == 0 || isFlag(fs, values[0]) {
			return nil, &Error{Setting: arg, Text: "its value is missing"}
		}
		if v, ok := flag.Value.(*flagValue); !ok || !v.field.many {
			out = append(out, arg, values[0])
			i++
			continue
		}
		if end := slices.IndexFunc(values, func(s string) bool { return strings.HasPrefix(s, "-") }); end >= 0 {
			values = values[:end]
		}
		if len(values) == 0 {
			return nil, &Error{Setting: arg, Text: "its value is missing"}
		}
		for _, v := range values {
			out = append(out, arg+"="+v)
		}
		i += len(values)
	}
	return out, nil
}

// isFlag tells whether arg is a use of a flag of fs, with or without "=".
func isFlag(fs *pflag.FlagSet, arg string) bool {
	name, ok := strings.CutPrefix(arg, "--")
	name, _, _ = strings.Cut(name, "=")
	return ok && fs.Lookup(name) != nil
}
