package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// load runs the whole way from an argument vector to a Config, as the program does.
func load(env map[string]string, args ...string) (Config, error) {
	fs := pflag.NewFlagSet("pd-router", pflag.ContinueOnError)
	flags := Declare(fs)
	args, err := ExpandArgs(fs, args)
	if err != nil {
		return Config{}, err
	}
	if err := fs.Parse(args); err != nil {
		return Config{}, FlagError(err)
	}
	return flags.Load(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

// must are the two settings without which nothing starts, and a parser that needs no folder.
var must = []string{"--vllm-url", "http://p:8000", "--decode", "d:5556:5557", "--parser", "none"}

// with adds arguments to must.
func plus(args ...string) []string { return append(append([]string{}, must...), args...) }

// write makes a config file and gives its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestDefaultsOfEverySetting(t *testing.T) {
	got, err := load(nil, must...)
	require.NoError(t, err)
	assert.Equal(t, Config{
		VLLMURL: "http://p:8000", Decode: []Node{{Host: "d", Ctrl: 5556, HTTP: 5557}},
		Host: "0.0.0.0", Port: 23333, MaxBody: 64 << 20,
		Parser: "none", GenerationConfig: "auto",
		QueueTimeout: 1800 * time.Second, QueueMax: 10000, QueueMaxBytes: 4 << 30, KVHandoff: "direct", KVArenaSlots: 4,
		StartupTimeout: time.Hour, DrainTimeout: 30 * time.Second, ConnectTimeout: 5 * time.Second,
		PrefillTimeout: time.Hour, KVTimeout: 130 * time.Second, StreamIdleTimeout: 600 * time.Second,
		LogFormat: "json", LogLevel: "info",
	}, got)
}

func TestLauncherCommandLines(t *testing.T) {
	folder := t.TempDir()
	for _, tc := range []struct {
		name string
		args []string
		want func(*Config)
	}{
		{"B200: parser none and a queue", []string{"--vllm-url", "http://p:8000", "--decode", "d:5556:5557", "--port", "8888",
			"--model-path", folder, "--parser", "none", "--queue-timeout", "1800"},
			func(c *Config) { c.Port, c.ModelPath = 8888, folder }},
		{"MI355X: a host", []string{"--vllm-url", "http://p:8000", "--decode", "d:5556:5557", "--host", "0.0.0.0", "--port", "8888",
			"--model-path", folder, "--parser", "none", "--queue-timeout", "60"},
			func(c *Config) { c.Port, c.ModelPath, c.QueueTimeout = 8888, folder, time.Minute }},
		{"srt-slurm: several nodes after one flag, parser by default", []string{"--vllm-url", "http://p:8000", "--decode", "d:5556:5557",
			"e:5556:5557", "f:5556:5557", "--host", "10.0.0.9", "--port", "8000", "--model-path", folder},
			func(c *Config) {
				c.Host, c.Port, c.ModelPath, c.Parser = "10.0.0.9", 8000, folder, "glm47"
				c.Decode = append(c.Decode, Node{"e", 5556, 5557}, Node{"f", 5556, 5557})
			}},
		{"srt-slurm: the flag repeated", plus("--decode", "e:5556:5557", "--decode", "f:1:2"),
			func(c *Config) { c.Decode = append(c.Decode, Node{"e", 5556, 5557}, Node{"f", 1, 2}) }},
		{"several values and the flag repeated and with =", plus("--decode", "e:1:2", "f:1:2", "--decode=g:1:2"),
			func(c *Config) { c.Decode = append(c.Decode, Node{"e", 1, 2}, Node{"f", 1, 2}, Node{"g", 1, 2}) }},
		{"--flag=value everywhere", []string{"--vllm-url=http://p:8000/", "--decode=d:5556:5557", "--parser=none", "--queue-timeout=0.5"},
			func(c *Config) { c.QueueTimeout = 500 * time.Millisecond }},
		{"values at the very end", []string{"--vllm-url", "http://p:8000", "--parser", "none", "--decode", "d:5556:5557", "e:1:2"},
			func(c *Config) { c.Decode = append(c.Decode, Node{"e", 1, 2}) }},
		{"the last use of a flag counts", plus("--port", "1", "--port", "2"), func(c *Config) { c.Port = 2 }},
		{"variables that are empty leave settings unset", plus("--model-path", "", "--model", "", "--metrics-addr", ""), func(*Config) {}},
		{"sampling defaults, where 0 is a value", plus("--default-temperature", "0", "--default-top-p", "0.5", "--default-top-k", "-1",
			"--default-repetition-penalty", "1.05", "--generation-config", "vllm"),
			func(c *Config) {
				c.GenerationConfig = "vllm"
				c.DefaultTemperature, c.DefaultTopP, c.DefaultTopK, c.DefaultRepetitionPenalty = new(0.0), new(0.5), new(-1), new(1.05)
			}},
		{"switches with and without a value", plus("--force-include-usage", "--reasoning-alias=false"),
			func(c *Config) { c.ForceIncludeUsage = true }},
		{"a staged router with all that is said of its arena", plus("--kv-handoff", "staged", "--kv-arena-bytes", "1GiB", "--kv-arena-sizes", "2x4096",
			"--kv-arena-hugepages", "--kv-arena-host", "10.0.0.9", "--kv-arena-port", "6000", "--kv-verify", "0.5"),
			func(c *Config) {
				c.KVHandoff, c.KVArenaBytes, c.KVArenaSizes, c.KVArenaHugepages = "staged", 1<<30, []ArenaSize{{2, 4096}}, true
				c.KVArenaHost, c.KVArenaPort, c.KVVerify = "10.0.0.9", 6000, 0.5
			}},
		{"what is said of an arena as if it were not said", plus("--kv-arena-hugepages=false", "--kv-arena-port=0", "--kv-verify=0"), func(*Config) {}},
		{"template settings", plus("--chat-template", "--x", "--default-chat-template-kwargs", ` {"enable_thinking": false} `),
			func(c *Config) {
				c.ChatTemplate, c.DefaultChatTemplateKwargs = "--x", json.RawMessage(`{"enable_thinking": false}`)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, err := load(nil, must...)
			require.NoError(t, err)
			tc.want(&want)
			got, err := load(nil, tc.args...)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}

// Invariant 1.
func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	path := write(t, "c.yaml", "port: 1\nqueue-max: 1\nmax-body: 1\ndecode: [f:1:2]\n")
	env := map[string]string{"PD_ROUTER_PORT": "2", "PD_ROUTER_QUEUE_MAX": "2", "PD_ROUTER_CONFIG": path,
		"PD_ROUTER_VLLM_URL": "http://env:1", "PD_ROUTER_PARSER": "none", "PD_ROUTER_DRAIN_TIMEOUT": ""}
	got, err := load(env, "--port", "3")
	require.NoError(t, err)
	assert.Equal(t, 3, got.Port, "flag")
	assert.Equal(t, 2, got.QueueMax, "environment")
	assert.Equal(t, int64(1), got.MaxBody, "file")
	assert.Equal(t, "http://env:1", got.VLLMURL)
	assert.Equal(t, []Node{{"f", 1, 2}}, got.Decode)
	assert.Equal(t, 30*time.Second, got.DrainTimeout, "an empty variable is none")

	env["PD_ROUTER_DECODE"] = "a:1:2  b:1:2"
	got, err = load(env)
	require.NoError(t, err)
	assert.Equal(t, []Node{{"a", 1, 2}, {"b", 1, 2}}, got.Decode, "lists are not merged")
	got, err = load(env, "--decode", "z:1:2")
	require.NoError(t, err)
	assert.Equal(t, []Node{{"z", 1, 2}}, got.Decode, "lists are not merged")
}

func TestKubernetesServiceLinkIsNotOurPort(t *testing.T) {
	got, err := load(map[string]string{"PD_ROUTER_PORT": "tcp://10.3.1.2:23333"}, must...)
	require.NoError(t, err)
	assert.Equal(t, 23333, got.Port)
}

// Invariant 2.
func TestFilesOfAllFormsSayTheSame(t *testing.T) {
	want, err := load(nil, "--vllm-url", "http://p:8000", "--decode", "d:5556:5557", "::1:1:2", "--parser", "none", "--queue-timeout", "0.25",
		"--queue-max-bytes", "8000000000", "--kv-timeout", "2m", "--default-top-k", "-1", "--default-temperature", "0.6", "--force-include-usage",
		"--default-chat-template-kwargs", `{"enableThinking":false}`)
	require.NoError(t, err)
	for name, content := range map[string]string{
		"c.yaml": `
vllm-url: http://p:8000
decode:
  - d:5556:5557
  - "::1:1:2"
parser: none
queue-timeout: 0.25
queue-max-bytes: 8000000000
kv-timeout: 2m
default-top-k: -1
default-temperature: 0.6
force-include-usage: true
default-chat-template-kwargs: '{"enableThinking":false}'
model:
`,
		"c.yml": "vllm-url: http://p:8000\ndecode: d:5556:5557 ::1:1:2\nparser: none\nqueue-timeout: 250ms\nqueue-max-bytes: 8_000_000_000\n" +
			"kv-timeout: 120\ndefault-top-k: '-1'\ndefault-temperature: 0.6\nForce-Include-Usage: 'true'\ndefault-chat-template-kwargs: '{\"enableThinking\":false}'\n",
		"c.toml": "vllm-url = 'http://p:8000'\ndecode = ['d:5556:5557', '::1:1:2']\nparser = 'none'\nqueue-timeout = 0.25\nqueue-max-bytes = 8000000000\n" +
			"kv-timeout = '2m'\ndefault-top-k = -1\ndefault-temperature = 0.6\nforce-include-usage = true\ndefault-chat-template-kwargs = '{\"enableThinking\":false}'\n",
		"c.json": `{"vllm-url":"http://p:8000","decode":["d:5556:5557","::1:1:2"],"parser":"none","queue-timeout":0.25,"queue-max-bytes":8e9,
			"kv-timeout":120.0,"default-top-k":-1,"default-temperature":0.6,"force-include-usage":true,"default-chat-template-kwargs":"{\"enableThinking\":false}","model":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, name, content)
			got, err := load(nil, "--config", path)
			require.NoError(t, err)
			want.Config = path
			assert.Equal(t, want, got)
		})
	}
}

// Invariant 3: each row is the whole line that an operator reads.
func TestErrorsNameSettingValueAndWish(t *testing.T) {
	const (
		seconds = "want seconds (30, 0.5) or a duration such as 1m30s, from 0 to 100 years"
		node    = "want host:ctrl_port:http_port such as 10.0.0.2:5556:5557, ports from 1 to 65535 and different"
		address = "want http://host:port or https://host:port, a path is allowed, nothing behind it and no user name"
		arena   = ": is for --kv-handoff staged: with direct the router holds no KV"
	)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no arguments", nil, "--vllm-url: missing; " + address},
		{"no decode node", []string{"--vllm-url=http://p"}, "--decode: missing; " + node},
		{"an unknown flag", plus("--no-such-flag"), "--no-such-flag: no such flag; --help lists all"},
		{"an unknown flag with a value", plus("--no-such-flag=1"), "--no-such-flag: no such flag; --help lists all"},
		{"an unknown letter", plus("-x"), "-x: no such flag; --help lists all"},
		{"a single dash before a name", plus("-port", "1"), "-port: no such flag; --help lists all"},
		{"dashes alone", plus("--=3"), "bad flag syntax: --=3"},
		{"words for a time", plus("--queue-timeout", "soon"), "--queue-timeout=soon: " + seconds},
		{"a negative time", plus("--queue-timeout", "-1"), "--queue-timeout=-1: " + seconds},
		{"a time that is no number", plus("--queue-timeout=nan"), "--queue-timeout=nan: " + seconds},
		{"a time that must not be 0", plus("--kv-timeout=0s"), "--kv-timeout=0s: want more than 0"},
		{"a value with a blank", plus("--kv-timeout", "1 s"), `--kv-timeout="1 s": ` + seconds},
		{"a port beyond the last", plus("--port", "99999999"), "--port=99999999: want a whole number from 0 to 65535"},
		{"a parser that does not exist", plus("--parser", "no-such-parser"), "--parser=no-such-parser: want glm47, dsv32, dsml or none"},
		{"a parser without a folder", plus("--parser", "glm47"), "--parser=glm47: needs --model-path, the folder with tokenizer.json; --parser none does without"},
		{"the default parser without a folder", []string{"--vllm-url=http://p", "--decode=d:1:2"}, "--parser=glm47: needs --model-path, the folder with tokenizer.json; --parser none does without"},
		{"a folder that is not there", plus("--model-path", "/no/such/folder"), "--model-path=/no/such/folder: no such folder"},
		{"half a node", plus("--decode", "127.0.0.1:5557"), "--decode=127.0.0.1:5557: " + node},
		{"a node twice", plus("--decode", "D:7:5557"), "--decode=D:7:5557: shares a port with d:5556:5557; want each node once"},
		{"nodes divided by commas", plus("--decode", "a:1:2,b:1:2"), "--decode=a:1:2,b:1:2: " + node},
		{"a flag where a value should be", []string{"--vllm-url=http://p", "--decode", "--port", "1"}, "--decode: its value is missing"},
		{"a flag with = where a value should be", plus("--model-path", "--port=1"), "--model-path: its value is missing"},
		{"a last flag without a value", plus("--port"), "--port: its value is missing"},
		{"a password in the URL is not repeated", []string{"--vllm-url=http://me:secret@p:1"}, "--vllm-url=http://***@p:1: " + address},
		{"a switch that is neither on nor off", plus("--reasoning-alias=maybe"), "--reasoning-alias=maybe: want true or false"},
		{"a size in another unit", plus("--max-body", "64MB"), "--max-body=64MB: want a whole number of bytes, KiB, MiB or GiB such as 64MiB, 1 or more"},
		{"memory of an arena that is not there", plus("--kv-arena-bytes=1GiB"), "--kv-arena-bytes" + arena},
		{"slots of an arena that is not there", plus("--kv-arena-sizes=2x4096"), "--kv-arena-sizes" + arena},
		{"huge pages of an arena that is not there", plus("--kv-arena-hugepages"), "--kv-arena-hugepages" + arena},
		{"an address of an arena that is not there", plus("--kv-arena-host=10.0.0.9"), "--kv-arena-host" + arena},
		{"a port of an arena that is not there", plus("--kv-arena-port=6000"), "--kv-arena-port" + arena},
		{"sums over an arena that is not there", plus("--kv-verify=0.5"), "--kv-verify" + arena},
		{"prefill ahead of an arena", plus("--kv-handoff=staged", "--prefill-ahead"), "--prefill-ahead: is for --kv-handoff direct: staged prefills as many ahead as --kv-arena-slots says"},
		{"an arena that nobody may wait in", plus("--kv-handoff=staged", "--queue-timeout=0"), "--queue-timeout 0: does not go with --kv-handoff staged, where requests wait with their KV ready"},
		{"profiles without a listener for them", plus("--pprof"), "--pprof: wants --metrics-addr, as profiles are never served on the port of the API"},
		{"bodies that could never wait", plus("--max-body=2GiB", "--queue-max-bytes=1GiB"), "--max-body: is more than --queue-max-bytes: such a request could never wait; want at most that"},
		{"template arguments that are no object", plus("--default-chat-template-kwargs", "[1]"), `--default-chat-template-kwargs=[1]: want a JSON object such as {"enable_thinking":false}`},
		{"a penalty of 0", plus("--default-repetition-penalty", "0"), "--default-repetition-penalty=0: want a number above 0"},
		{"a fraction for top-k", plus("--default-top-k", "1.5"), "--default-top-k=1.5: want a whole number from -1 to 2147483647"},
		{"bytes that are no text", plus("--port", "\xff\x1b[2J\n"), `--port="\xff\x1b[2J\n": want a whole number from 0 to 65535`},
		{"a very long value", plus("--port", strings.Repeat("9", 9999)), "--port=" + strings.Repeat("9", 120) + "...: want a whole number from 0 to 65535"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(nil, tc.args...)
			require.Error(t, err)
			assert.IsType(t, &Error{}, err)
			assert.Equal(t, tc.want, err.Error())
		})
	}
}

func TestErrorsNameTheirSource(t *testing.T) {
	_, err := load(map[string]string{"PD_ROUTER_QUEUE_TIMEOUT": "soon"}, must...)
	assert.ErrorContains(t, err, "--queue-timeout=soon (from PD_ROUTER_QUEUE_TIMEOUT): want seconds")

	for _, tc := range []struct{ name, file, content, want string }{
		{"a bad value", "c.yaml", "queue-timeout: soon", "--queue-timeout=soon (from PATH): want seconds"},
		{"a value that is no number", "c.yaml", "queue-timeout: .inf", "--queue-timeout=+Inf (from PATH): want seconds"},
		{"an unknown key", "c.yaml", "queue_timeout: 1", `--config=PATH: unknown key "queue_timeout"; keys are the flags`},
		{"an unknown table", "c.toml", "[queue]\ntimeout = 1", `--config=PATH: unknown key "queue"; keys are`},
		{"a key with a dot", "c.json", `{"queue.max":1}`, `--config=PATH: unknown key "queue.max"; keys are`},
		{"the file inside the file", "c.yaml", "config: x.yaml", `--config=PATH: unknown key "config"; keys are`},
		{"a list for one value", "c.yaml", "port: [1]", "--port (from PATH): want one value, not a list or a table"},
		{"a table for one value", "c.json", `{"default-chat-template-kwargs":{"enable_thinking":false}}`, "--default-chat-template-kwargs (from PATH): want one value, not a list or a table"},
		{"a list in a list", "c.yaml", "decode: [[a]]", "--decode (from PATH): want one value, not a list or a table"},
		{"a date", "c.toml", "log-level = 2020-01-01", "--log-level (from PATH): want one value, not a list or a table"},
		{"broken YAML", "c.yaml", "port: [1\nx: {", "--config=PATH: "},
		{"a key twice", "c.yaml", "port: 1\nport: 2", "--config=PATH: "},
		{"another ending", "c.ini", "port=1", "--config=PATH: want a file that ends in .yaml, .yml, .toml or .json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, tc.file, tc.content)
			_, err := load(nil, plus("--config", path)...)
			require.Error(t, err)
			assert.IsType(t, &Error{}, err)
			assert.Contains(t, err.Error(), strings.ReplaceAll(tc.want, "PATH", path))
			assert.NotContains(t, err.Error(), "\n")
		})
	}
	_, err = load(nil, plus("--config", "/no/such.yaml")...)
	assert.ErrorContains(t, err, "--config=/no/such.yaml: open /no/such.yaml: no such file")
}
