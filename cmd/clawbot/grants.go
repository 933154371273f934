package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/clawbot/clawbot/agent"
)

// grantJSON is a grant as --json prints it, secrets masked.
type grantJSON struct {
	ID         agent.GrantID    `json:"id"`
	Session    agent.SessionID  `json:"session_id"`
	Tool       string           `json:"tool"`
	Args       json.RawMessage  `json:"args"`
	ArgsSHA256 string           `json:"args_sha256"`
	GrantedBy  string           `json:"granted_by"`
	GrantedTo  string           `json:"granted_to"`
	Approval   agent.ApprovalID `json:"approval_id"`
	CreatedAt  time.Time        `json:"created_at"`
	ExpiresAt  time.Time        `json:"expires_at"`
	UsesLeft   int              `json:"uses_left"`
	RevokedBy  string           `json:"revoked_by,omitempty"`
}

func (a *app) grantsList(ctx context.Context, all, asJSON bool) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		list, err := db.Grants(ctx, all, 1000)
		if err != nil {
			return err
		}
		out := make([]grantJSON, len(list))
		for i, g := range list {
			args, _ := a.mask.Object(g.Args)
			out[i] = grantJSON{g.ID, g.Session, g.Tool, json.RawMessage(args), g.ArgsSHA256, g.GrantedBy.String(), g.GrantedTo.String(),
				g.Approval, g.CreatedAt, g.ExpiresAt, g.UsesLeft, g.RevokedBy.String()}
		}
		return a.print(asJSON, out, func(w io.Writer) {
			fmt.Fprintln(w, "ID\tTOOL\tGIVEN BY\tFOR\tUSES LEFT\tUNTIL\tREVOKED BY\tARGS")
			for _, g := range out {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", g.ID, agent.VisibleLine(g.Tool), agent.VisibleLine(g.GrantedBy), agent.VisibleLine(g.GrantedTo),
					g.UsesLeft, g.ExpiresAt.UTC().Format("2006-01-02 15:04:05"), agent.VisibleLine(g.RevokedBy), agent.VisibleLine(agent.Bound(string(g.Args), 80)))
			}
		})
	})
}

func (a *app) grantsRevoke(ctx context.Context, id agent.GrantID) error {
	return a.withDatabase(ctx, asking, func(db *database) error {
		me := agent.Actor{Channel: "cli", User: userName()}
		revoked, err := db.RevokeGrant(ctx, id, me, func(g agent.Grant) agent.AuditRecord {
			args, _ := a.mask.Object(g.Args)
			return agent.AuditRecord{Kind: agent.AuditGrantRevoked, Approval: g.Approval, Tool: g.Tool, Args: args, ArgsSHA256: g.ArgsSHA256,
				Source: agent.SourcePerson, Actor: me, Backchannel: "cli", Reason: string(g.ID), Latency: -1}
		})
		switch {
		case errors.Is(err, agent.ErrNotFound):
			return fmt.Errorf("there is no grant %q; `clawbot grants list` shows them", id)
		case err != nil:
			return err
		case !revoked:
			return fmt.Errorf("%s was revoked before", id)
		}
		fmt.Fprintf(a.stdout, "%s is revoked; the next such call asks again\n", id)
		return nil
	})
}
