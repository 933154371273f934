package store_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/clawbot/clawbot/migrations"
	"github.com/clawbot/clawbot/store"
	"github.com/clawbot/clawbot/store/pgtest"
)

// Every query of docs/audit.md runs on the schema.
func TestAuditQueriesOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	url := pgtest.Database(t, "clawbot-"+pgtest.Hash(migrations.FS), func(ctx context.Context, url string) error {
		return store.Migrate(ctx, url, url)
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	parts := strings.Split(string(page), "```sql\n")
	if len(parts) < 13 {
		t.Fatalf("the page has %d queries, want a dozen at least", len(parts)-1)
	}
	for _, part := range parts[1:] {
		sql, _, _ := strings.Cut(part, "```")
		rows, err := conn.Query(t.Context(), sql)
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
