package config

import (
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// Error is a command line, variable or file that cannot be used. The program ends with exit code 2, its text is one line.
type Error struct {
	Setting string // "--queue-timeout=soon", or "" when it is about the command line as a whole
	Source  string // where the value came from, "" is the command line
	Text    string // what is wrong or what is wanted
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Setting)
	if e.Source != "" {
		b.WriteString(" (from " + e.Source + ")")
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// FlagError gives an error of flag parsing, on any command, the form of Error.
func FlagError(err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		own     *Error
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &unknown):
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			return &Error{Setting: "-" + oneLine(short), Text: "no such flag; --help lists all"}
		}
		return &Error{Setting: "--" + oneLine(unknown.GetSpecifiedName()), Text: "no such flag; --help lists all"}
	case errors.As(err, &missing):
		return &Error{Setting: "--" + missing.GetSpecifiedName(), Text: "its value is missing"}
	case errors.As(err, &invalid):
		return &Error{Setting: assignment(invalid.GetFlag().Name, invalid.GetValue()), Text: oneLine(invalid.Unwrap().Error())}
	default:
		return &Error{Text: oneLine(err.Error())}
	}
}

// maxShown bounds how much of a value an error repeats.
const maxShown = 120

// assignment is "--name=value", the value quoted when it would not read as one word. The user and password of a URL
// are not repeated.
func assignment(name, value string) string {
	cut := value
	if scheme, rest, ok := strings.Cut(cut, "://"); ok {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			cut = scheme + "://***" + rest[at:]
		}
	}
	if len(cut) > maxShown {
		cut = strings.ToValidUTF8(cut[:maxShown], "") + "..."
	}
	if strings.ContainsFunc(cut, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}) {
		cut = strconv.Quote(cut)
	}
	return "--" + name + "=" + cut
}

// oneLine makes text from a library fit the promise of one printable line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
