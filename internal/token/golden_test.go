package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is what testdata/golden.py wrote: the texts of the reference library.
type golden struct {
	Library       string
	Size          int
	Sequences     []goldenRow
	Kept, Skipped []string
}

type goldenRow struct {
	ids           []int
	kept, skipped []string // texts of every prefix, or of the whole alone
}

func (r *goldenRow) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.ids, &r.kept, &r.skipped})
}

func readGolden(t testing.TB, dir string) (*Tokenizer, golden) {
	tok, err := Load(dir)
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(b, &g))
	require.NotEmpty(t, g.Sequences)
	return tok, g
}

// TestSmallTokenizersAgreeWithTheLibrary, invariants 1 and 3: the committed texts of every prefix of every list.
func TestSmallTokenizersAgreeWithTheLibrary(t *testing.T) {
	dirs, err := filepath.Glob("testdata/small/*")
	require.NoError(t, err)
	require.Greater(t, len(dirs), 10)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok, g := readGolden(t, dir)
			require.Equal(t, g.Size, tok.Size())
			for _, row := range g.Sequences {
				for n := range row.ids {
					require.Equal(t, row.kept[n], tok.Decode(row.ids[:n+1], SkipNone), "ids %v", row.ids[:n+1])
					require.Equal(t, row.skipped[n], tok.Decode(row.ids[:n+1], SkipSpecial), "ids %v, specials skipped", row.ids[:n+1])
				}
				if len(row.ids) == 1 {
					require.Equal(t, row.kept[0], tok.Text(row.ids[0]), "text of %d", row.ids[0])
				}
			}
		})
	}
}

// TestRealTokenizersAgreeWithTheLibrary reads the folders below PD_ROUTER_TOKENIZERS, which test/tokenizers.sh makes.
func TestRealTokenizersAgreeWithTheLibrary(t *testing.T) {
	root := os.Getenv("PD_ROUTER_TOKENIZERS")
	if root == "" {
		t.Skip("PD_ROUTER_TOKENIZERS is not set")
	}
	dirs, err := filepath.Glob(filepath.Join(root, "*", "golden.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(dirs), 3, "tokenizers below %s", root)
	for _, file := range dirs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok, g := readGolden(t, dir)
			require.Equal(t, g.Size, tok.Size())
			for _, row := range g.Sequences {
				require.Equal(t, row.kept[0], tok.Decode(row.ids, SkipNone), "ids %v", row.ids)
				require.Equal(t, row.skipped[0], tok.Decode(row.ids, SkipSpecial), "ids %v, specials skipped", row.ids)
			}
			for i := range g.Kept {
				kept, skipped := sha256.New(), sha256.New()
				for id := i * 1000; id < min((i+1)*1000, g.Size); id++ {
					kept.Write(append(tok.AppendText(nil, id), 0))
					skipped.Write(append([]byte(tok.Decode([]int{id}, SkipSpecial)), 0))
				}
				require.Equal(t, g.Kept[i], hex.EncodeToString(kept.Sum(nil)), "texts of ids from %d on", i*1000)
				require.Equal(t, g.Skipped[i], hex.EncodeToString(skipped.Sum(nil)), "texts of ids from %d on, specials skipped", i*1000)
			}
		})
	}
}
