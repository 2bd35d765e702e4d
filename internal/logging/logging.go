package logging

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New makes a logger that writes to w. format is "json" or "console", level one of "debug", "info", "warn", "error"; a
// message less severe than level is not written. perSecond bounds how many lines of one message and level are written each
// second; 0 writes all.
func New(w io.Writer, format, level string, perSecond int) (*zap.Logger, error) {
	least, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	c := zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "part", MessageKey: "msg", StacktraceKey: "stack",
		EncodeTime:     encodeTime,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.SecondsDurationEncoder,
		LineEnding:     zapcore.DefaultLineEnding,
	}
	var encoder zapcore.Encoder
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(c)
	case "console":
		c.EncodeDuration = zapcore.StringDurationEncoder
		encoder = zapcore.NewConsoleEncoder(c)
	default:
		return nil, fmt.Errorf("log format %q: want json or console", format)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), least)
	if perSecond > 0 {
		core = zapcore.NewSamplerWithOptions(core, time.Second, perSecond, 0)
	}
	return zap.New(core), nil
}

// encodeTime writes RFC 3339 in UTC; the fixed width keeps lines sortable as text.
func encodeTime(t time.Time, enc zapcore.PrimitiveArrayEncoder) {
	enc.AppendString(t.UTC().Format("2006-01-02T15:04:05.000000Z"))
}
