-- +goose Up

-- A session is the mailbox of one thread and the queue that workers claim.
CREATE TABLE sessions (
    id            text PRIMARY KEY,
    channel       text NOT NULL,
    workspace     text NOT NULL,
    conversation  text NOT NULL,
    thread        text NOT NULL,
    -- A job that speaks at another place than it was made has a session of its own
    -- there, so that it reads nothing of what was said; '' otherwise.
    job           text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    -- When there is work to do; null: nothing. wakes counts how often it was set,
    -- so that a release does not undo a wake-up it has not seen.
    runnable_at   timestamptz,
    wakes         bigint NOT NULL DEFAULT 0,
    -- The lease. A write of a turn names revision and owner; an older one is refused.
    revision      bigint NOT NULL DEFAULT 0,
    lease_owner   text,
    leased_until  timestamptz,
    claims        integer NOT NULL DEFAULT 0, -- since the last orderly release
    -- Heads of the session's append-only lists.
    message_seq   bigint NOT NULL DEFAULT 0,
    event_seq     bigint NOT NULL DEFAULT 0,
    audit_seq     bigint NOT NULL DEFAULT 0,
    audit_hash    text NOT NULL DEFAULT '',
    UNIQUE (channel, workspace, conversation, thread, job),
    CHECK ((lease_owner IS NULL) = (leased_until IS NULL))
);
CREATE INDEX sessions_runnable ON sessions (runnable_at) WHERE runnable_at IS NOT NULL;

-- What people wrote, stored before the platform is acknowledged.
CREATE TABLE inbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id   text NOT NULL REFERENCES sessions ON DELETE CASCADE,
    channel      text NOT NULL,
    key          text NOT NULL,
    author       text NOT NULL,
    author_name  text NOT NULL,
    ref          text NOT NULL,
    text         text NOT NULL,
    received_at  timestamptz NOT NULL DEFAULT now(),
    turn_id      text, -- null: waits
    UNIQUE (channel, key)
);
CREATE INDEX inbox_waiting ON inbox (session_id, id) WHERE turn_id IS NULL;

CREATE TABLE turns (
    id            text PRIMARY KEY,
    session_id    text NOT NULL REFERENCES sessions ON DELETE CASCADE,
    status        text NOT NULL CHECK (status IN ('running', 'parked', 'done', 'degraded', 'failed', 'cancelled')),
    channel       text NOT NULL,
    workspace     text NOT NULL,
    conversation  text NOT NULL,
    thread        text NOT NULL,
    author        text NOT NULL,
    author_name   text NOT NULL,
    ref           text NOT NULL,
    model         text NOT NULL DEFAULT '',
    iterations    integer NOT NULL DEFAULT 0 CHECK (iterations >= 0),
    active_ms     bigint NOT NULL DEFAULT 0 CHECK (active_ms >= 0),
    error         text NOT NULL DEFAULT '',
    stopped_by    text, -- who asked for its end while it was open
    stopped_name  text,
    started_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    CHECK ((stopped_by IS NULL) = (stopped_name IS NULL)),
    CHECK ((status IN ('running', 'parked')) = (ended_at IS NULL))
);
-- One session, one turn at a time.
CREATE UNIQUE INDEX turns_open ON turns (session_id) WHERE status IN ('running', 'parked');
CREATE INDEX turns_session ON turns (session_id, started_at);

CREATE TABLE messages (
    session_id   text NOT NULL REFERENCES sessions ON DELETE CASCADE,
    seq          bigint NOT NULL,
    turn_id      text NOT NULL,
    role         text NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
    author       text,
    author_name  text,
    text         text NOT NULL,
    calls        jsonb, -- role assistant: [{"id","tool","arguments"}] in the model's order
    call_id      text,  -- role tool: the call this answers
    failed       boolean NOT NULL DEFAULT false,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, seq),
    CHECK ((role = 'tool') = (call_id IS NOT NULL)),
    CHECK (role = 'user' OR author IS NULL),
    CHECK (role = 'assistant' OR calls IS NULL)
);

CREATE TABLE tool_calls (
    turn_id      text NOT NULL REFERENCES turns ON DELETE CASCADE,
    call_id      text NOT NULL,
    session_id   text NOT NULL,
    batch        integer NOT NULL CHECK (batch > 0),
    position     integer NOT NULL CHECK (position >= 0),
    tool         text NOT NULL,
    raw          text NOT NULL,            -- as the model wrote it; for people, never executed
    args         text NOT NULL,            -- the frozen canonical bytes that run; '' if it could not be frozen
    args_sha256  text NOT NULL,
    definition   text NOT NULL,            -- hash of the tool's definition when it was judged
    filled       text[] NOT NULL DEFAULT '{}',
    status       text NOT NULL CHECK (status IN ('prepared', 'approved', 'started',
                   'succeeded', 'failed', 'interrupted', 'unknown',
                   'denied', 'replaced', 'expired', 'undeliverable', 'deduplicated', 'blocked', 'cancelled', 'skipped')),
    outcome      text GENERATED ALWAYS AS (CASE WHEN status NOT IN ('prepared', 'approved', 'started') THEN status END) STORED,
    approval_id  text,
    rule         text NOT NULL DEFAULT '',
    output       text NOT NULL DEFAULT '',
    error        text NOT NULL DEFAULT '',
    latency_ms   bigint,
    prepared_at  timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz,
    PRIMARY KEY (turn_id, call_id),
    UNIQUE (turn_id, batch, position),
    -- What ran was started; what was not started did not run.
    CHECK ((status IN ('started', 'succeeded', 'failed', 'interrupted', 'unknown')) = (started_at IS NOT NULL)),
    CHECK ((status IN ('prepared', 'approved', 'started')) = (finished_at IS NULL)),
    -- Nothing that was not frozen can be started.
    CHECK (started_at IS NULL OR args <> ''),
    CHECK (status <> 'approved' OR approval_id IS NOT NULL)
);
CREATE INDEX tool_calls_session ON tool_calls (session_id, prepared_at);

CREATE TABLE approvals (
    id              text PRIMARY KEY,
    session_id      text NOT NULL REFERENCES sessions ON DELETE CASCADE,
    turn_id         text NOT NULL,
    call_id         text NOT NULL,
    version         integer NOT NULL DEFAULT 1,
    status          text NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'replaced', 'expired', 'cancelled', 'undeliverable')),
    channel         text NOT NULL,
    workspace       text NOT NULL,
    conversation    text NOT NULL,
    thread          text NOT NULL,
    tool            text NOT NULL,
    args            text NOT NULL,
    args_sha256     text NOT NULL,
    request_sha256  text NOT NULL, -- over everything that the consent is bound to
    filled          text[] NOT NULL DEFAULT '{}',
    requester       text NOT NULL,
    requester_name  text NOT NULL,
    rule            text NOT NULL,
    why             text NOT NULL,
    approvers       jsonb NOT NULL,
    quorum          integer NOT NULL CHECK (quorum > 0),
    asked_at        timestamptz NOT NULL DEFAULT now(),
    deadline        timestamptz NOT NULL,
    card_ref        text NOT NULL DEFAULT '', -- set once the platform confirmed the card
    decided_at      timestamptz,
    decided_by      text,
    source          text CHECK (source IN ('person', 'policy', 'grant', 'timeout', 'system')),
    reason          text NOT NULL DEFAULT '',
    backchannel     text,
    UNIQUE (turn_id, call_id, version),
    FOREIGN KEY (turn_id, call_id) REFERENCES tool_calls ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    CHECK (deadline > asked_at),
    CHECK ((status = 'pending') = (decided_at IS NULL)),
    CHECK ((status = 'pending') = (source IS NULL)),
    -- A person decided exactly when the row says which one.
    CHECK (coalesce(source = 'person', false) = (decided_by IS NOT NULL)),
    CHECK (status NOT IN ('approved', 'denied', 'replaced') OR source IN ('person', 'grant'))
);
CREATE INDEX approvals_pending ON approvals (deadline) WHERE status = 'pending';
CREATE INDEX approvals_session ON approvals (session_id, asked_at);

-- One person, one voice.
CREATE TABLE votes (
    approval_id  text NOT NULL REFERENCES approvals ON DELETE CASCADE,
    actor        text NOT NULL,
    name         text NOT NULL,
    vote         text NOT NULL CHECK (vote IN ('approve', 'deny')),
    backchannel  text NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (approval_id, actor)
);

-- Standing consent for one exact call: tool and canonical arguments.
CREATE TABLE grants (
    id           text PRIMARY KEY,
    session_id   text NOT NULL,
    tool         text NOT NULL,
    args_sha256  text NOT NULL,
    granted_by   text NOT NULL,
    granted_to   text NOT NULL,
    approval_id  text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    uses_left    integer NOT NULL CHECK (uses_left >= 0),
    revoked_at   timestamptz,
    revoked_by   text,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL)),
    CHECK (expires_at > created_at)
);
CREATE INDEX grants_call ON grants (session_id, tool, args_sha256) WHERE revoked_at IS NULL;

-- What is to be posted or edited, kept until the platform confirmed it.
CREATE TABLE deliveries (
    id            text PRIMARY KEY,
    ordinal       bigint GENERATED ALWAYS AS IDENTITY, -- order within the session
    session_id    text NOT NULL REFERENCES sessions ON DELETE CASCADE,
    turn_id       text NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('text', 'card')),
    channel       text NOT NULL,
    workspace     text NOT NULL,
    conversation  text NOT NULL,
    thread        text NOT NULL,
    text          text NOT NULL,
    approval_id   text REFERENCES approvals ON DELETE CASCADE,
    state         text NOT NULL CHECK (state IN ('due', 'sent', 'failed')),
    parts         integer NOT NULL DEFAULT 0 CHECK (parts >= 0), -- sent so far
    attempts      integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    due_at        timestamptz NOT NULL DEFAULT now(),
    lease_owner   text, -- who tries it, or tried it last and does not know whether it arrived
    leased_until  timestamptz,
    ref           text NOT NULL DEFAULT '',
    reason        text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    done_at       timestamptz,
    CHECK ((kind = 'card') = (approval_id IS NOT NULL)),
    CHECK ((state = 'due') = (done_at IS NULL))
);
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE state = 'due';
CREATE INDEX deliveries_order ON deliveries (session_id, ordinal) WHERE state = 'due';

-- Prompts that run later. Where a job was made says who sees it; to_… says where
-- its answers go.
CREATE TABLE jobs (
    id               text PRIMARY KEY,
    channel          text NOT NULL,
    workspace        text NOT NULL,
    conversation     text NOT NULL,
    thread           text NOT NULL,
    mode             text NOT NULL CHECK (mode IN ('post', 'none')),
    to_channel       text NOT NULL,
    to_workspace     text NOT NULL,
    to_conversation  text NOT NULL,
    to_thread        text NOT NULL,
    prompt           text NOT NULL,
    schedule         text NOT NULL, -- '' for a one-off job
    creator          text NOT NULL,
    creator_name     text NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    next_at          timestamptz,   -- null: over or removed
    removed_at       timestamptz,
    CHECK (removed_at IS NULL OR next_at IS NULL)
);
CREATE INDEX jobs_due ON jobs (next_at) WHERE next_at IS NOT NULL;

-- The timeline of turns.
CREATE TABLE events (
    session_id  text NOT NULL REFERENCES sessions ON DELETE CASCADE,
    seq         bigint NOT NULL,
    turn_id     text NOT NULL,
    call_id     text,
    type        text NOT NULL,
    fields      jsonb NOT NULL,
    at          timestamptz NOT NULL,
    PRIMARY KEY (session_id, seq)
);

-- The audit. No foreign key: nothing that is deleted elsewhere reaches it.
CREATE TABLE audit_log (
    session_id   text NOT NULL,
    seq          bigint NOT NULL CHECK (seq > 0),
    at           timestamptz NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('policy_decision', 'approval_requested', 'approval_vote', 'approval_decided',
                   'click_refused', 'tool_started', 'tool_finished', 'grant_created', 'grant_used', 'grant_revoked')),
    turn_id      text,
    call_id      text,
    approval_id  text,
    tool         text,
    args         jsonb,
    args_sha256  text,
    decision     text,
    source       text CHECK (source IN ('person', 'policy', 'grant', 'timeout', 'system')),
    actor        text,
    channel      text,
    backchannel  text,
    rule         text,
    reason       text,
    latency_ms   bigint,
    prev_hash    text NOT NULL,
    hash         text NOT NULL,
    PRIMARY KEY (session_id, seq),
    CHECK (coalesce(source = 'person', false) = (actor IS NOT NULL))
);
CREATE INDEX audit_log_at ON audit_log USING brin (at);
CREATE INDEX audit_log_actor ON audit_log (actor, at DESC);
CREATE INDEX audit_log_tool ON audit_log (tool, at DESC);
CREATE INDEX audit_log_approval ON audit_log (approval_id);

-- +goose StatementBegin
CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only: % refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_log_rows BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_is_append_only();
CREATE TRIGGER audit_log_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only();

-- +goose Down
DROP TABLE audit_log, events, jobs, deliveries, grants, votes, approvals, tool_calls, messages, turns, inbox, sessions;
DROP FUNCTION audit_log_is_append_only;
