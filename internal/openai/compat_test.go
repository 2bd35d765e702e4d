package openai

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompatibilityPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "compatibility-fields.md")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(CompatibilityTable()), 0o644))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, CompatibilityTable(), string(page), "the page is behind the gate: run with -update")
}

// What the table says of a field is what the gate does with it.
func TestFieldsTellTheTruth(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Fields() {
		t.Run(f.Name, func(t *testing.T) {
			require.False(t, names[f.Name], "twice")
			names[f.Name] = true
			require.NotZero(t, f.Endpoints)
			if f.Rule != RouterOwned {
				require.NotEmpty(t, f.Serves)
			}
			refusals := map[string]bool{}
			for ep := range NumEndpoints {
				for _, value := range []string{`null`, `true`, `false`, `0`, `1`, `2`, `-7`, `0.5`, `1e400`, `"x"`, `""`, `[]`, `[""]`, `["a","b"]`, `{}`, `{"type":"json_object"}`} {
					r, err := full.Check(ep, mustParse(t, `{"`+f.Name+`":`+value+`}`))
					if err != nil {
						require.NotZero(t, f.Endpoints&(1<<ep), "it is no field of this endpoint")
						require.Equal(t, f.Name, err.Param)
						require.Contains(t, f.Else, err.Type, value)
						refusals[err.Type] = true
						continue
					}
					require.Zero(t, r.Needs&^f.Needs, value)
					if f.Rule == NeutralOnly || f.Rule == PassedThrough || f.Rule == RouterOwned {
						require.Zero(t, r.Needs)
						require.False(t, r.Stream || r.LogProbs || r.Stops != nil || r.Grammar != nil || r.MaxTokens != 0)
					}
				}
			}
			switch f.Rule {
			case RouterOwned:
				require.Empty(t, refusals)
				require.Empty(t, f.Else)
			case NeutralOnly:
				require.True(t, refusals[TypeCapabilityUnavailable])
			case PassedThrough:
				require.Equal(t, f.check != nil, f.Else != "")
			}
		})
	}
}

func TestTheTableIsWellFormed(t *testing.T) {
	rows := 0
	for line := range strings.Lines(CompatibilityTable()) {
		if strings.HasPrefix(line, "|") {
			require.Equal(t, 8, strings.Count(line, "|")-strings.Count(line, `\|`), line)
			rows++
		}
	}
	require.Equal(t, int(numFields)+3, rows)
	require.Equal(t, "only neutral", NeutralOnly.String())
	require.Equal(t, "chat completions both", OnChat.String()+" "+OnCompletions.String()+" "+OnBoth.String())
}
