-- +goose Up

-- What the model asked for where a hook changed the name (raw has the arguments);
-- the argument whose value a person gave and that is shown to nobody; what the
-- result was when it was stored; its receipt; the standing consent it ran with.
ALTER TABLE tool_calls
    ADD COLUMN asked_tool    text NOT NULL DEFAULT '',
    ADD COLUMN secret_arg    text NOT NULL DEFAULT '',
    ADD COLUMN result_sha256 text NOT NULL DEFAULT '',
    ADD COLUMN receipt       text NOT NULL DEFAULT '',
    ADD COLUMN grant_id      text NOT NULL DEFAULT '';

-- A grant holds for the call as it was then: shown arguments, the tool's definition, and
-- who may decide under which rule.
ALTER TABLE grants
    ADD COLUMN args       text NOT NULL DEFAULT '',
    ADD COLUMN definition text NOT NULL DEFAULT '',
    ADD COLUMN terms      text NOT NULL DEFAULT '';

-- A question for a value (ask_input) names the argument and has a text of its own.
-- A replacement is what a person said instead of letting the call run.
ALTER TABLE approvals
    ADD COLUMN target_arg  text NOT NULL DEFAULT '',
    ADD COLUMN prompt      text NOT NULL DEFAULT '',
    ADD COLUMN secret      boolean NOT NULL DEFAULT false,
    ADD COLUMN replacement text NOT NULL DEFAULT '',
    ADD CHECK (replacement = '' OR status = 'replaced');

-- How much of the turn's working time had passed when the calls of the latest
-- answer were taken in. The message that shows how far the turn is: the platform's id
-- of it, when it is to be drawn next (null: not), how often that was begun and not
-- ended, and a count that goes up with each change there is to show.
ALTER TABLE turns
    ADD COLUMN batch_active_ms bigint NOT NULL DEFAULT 0 CHECK (batch_active_ms >= 0),
    ADD COLUMN status_ref      text NOT NULL DEFAULT '',
    ADD COLUMN status_due_at   timestamptz,
    ADD COLUMN status_tries    integer NOT NULL DEFAULT 0,
    ADD COLUMN status_changes  integer NOT NULL DEFAULT 0;
CREATE INDEX turns_status_due ON turns (status_due_at) WHERE status_due_at IS NOT NULL;

-- +goose Down
ALTER TABLE turns DROP COLUMN batch_active_ms, DROP COLUMN status_ref, DROP COLUMN status_due_at, DROP COLUMN status_tries, DROP COLUMN status_changes;
ALTER TABLE approvals DROP COLUMN target_arg, DROP COLUMN prompt, DROP COLUMN secret, DROP COLUMN replacement;
ALTER TABLE tool_calls DROP COLUMN asked_tool, DROP COLUMN secret_arg, DROP COLUMN result_sha256, DROP COLUMN receipt, DROP COLUMN grant_id;
ALTER TABLE grants DROP COLUMN args, DROP COLUMN definition, DROP COLUMN terms;
