-- Tables and functions of the meta store, format 1. Run once, in a transaction, with the search_path at its schema.
--
-- Isolation is READ COMMITTED; what makes groups atomic is locks, always taken in the same order, so that calls which
-- overlap wait for each other and do not deadlock: first the rows that exist, by key, then the keys that do not, by key.

CREATE TABLE format (version integer NOT NULL);
INSERT INTO format VALUES (1);

-- Versions are never given out twice, not even after a crash.
CREATE SEQUENCE versions;

CREATE TABLE sessions (
    id text COLLATE "C" PRIMARY KEY,
    expires_at timestamptz NOT NULL
);

CREATE TABLE records (
    key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL,
    version bigint NOT NULL,
    session text COLLATE "C" REFERENCES sessions ON DELETE CASCADE
) WITH (fillfactor = 80); -- room to update a row in its page, without touching the index

CREATE INDEX records_by_session ON records (session) WHERE session IS NOT NULL;


-- Several groups of conditional writes; the arrays have one element for each operation, in order.
--   kinds:   0 check, 1 put, 2 delete
--   expects: 0 the record must be absent, -1 anything goes, else the version that it must have
-- One row for each operation: of a refused group what is there now; else the new version of a put.
--
-- CT001: a record that is named belongs to a session that has expired; sweep, then call again.
-- CT002: the session that the puts are for is gone.
-- 40001: a key appeared that was absent a moment ago; call again.
CREATE FUNCTION transact(
    groups integer[], kinds integer[], keys text[], expects bigint[], vals bytea[], for_session text
) RETURNS TABLE (refused boolean, version bigint, value bytea)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    found_versions bigint[];
    found_sessions text[];
    refused_groups integer[];
    raced_groups integer[];
    must_repeat boolean;
    written_keys text[];
    written_versions bigint[];
    updated_keys text[];
    updated_versions bigint[];
BEGIN
    IF for_session IS NOT NULL THEN
        -- The lock holds off a sweep until this call has committed.
        PERFORM FROM sessions s WHERE s.id = for_session AND s.expires_at > clock_timestamp() FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'session % is gone', for_session USING ERRCODE = 'CT002';
        END IF;
    END IF;

    -- Lock what exists.
    SELECT array_agg(locked.version ORDER BY op.n), array_agg(locked.session ORDER BY op.n)
    INTO found_versions, found_sessions
    FROM unnest(keys) WITH ORDINALITY AS op(key, n)
    LEFT JOIN (
        SELECT r.key, r.version, r.session FROM records r WHERE r.key = ANY (keys) ORDER BY r.key FOR UPDATE
    ) locked ON locked.key = op.key;

    IF array_remove(found_sessions, NULL) <> '{}' AND EXISTS (
        SELECT FROM sessions s WHERE s.id = ANY (found_sessions) AND s.expires_at <= clock_timestamp()
    ) THEN
        RAISE EXCEPTION 'a session has expired' USING ERRCODE = 'CT001';
    END IF;

    refused_groups := ARRAY(
        SELECT DISTINCT op.grp
        FROM unnest(groups, expects, found_versions) AS op(grp, expect, found)
        WHERE op.expect = 0 AND op.found IS NOT NULL OR op.expect > 0 AND op.found IS DISTINCT FROM op.expect
    );

    -- Take the keys that are absent, those too that must only stay so: else two calls, each of which needs the key
    -- of the other to be absent, could both succeed. A key that somebody else took in the meantime refuses its group.
    WITH wanted AS (
        SELECT op.grp, op.key, op.expect, op.val
        FROM unnest(groups, kinds, keys, expects, vals, found_versions) AS op(grp, kind, key, expect, val, found)
        WHERE op.found IS NULL AND op.grp <> ALL (refused_groups) AND (op.kind > 0 OR op.expect = 0)
    ), taken AS (
        INSERT INTO records AS r (key, value, version, session)
        SELECT w.key, coalesce(w.val, ''), nextval('versions'), for_session FROM wanted w ORDER BY w.key
        ON CONFLICT DO NOTHING
        RETURNING r.key, r.version
    )
    SELECT
        coalesce(array_agg(taken.key), '{}'),
        coalesce(array_agg(taken.version), '{}'),
        coalesce(array_agg(wanted.grp) FILTER (WHERE taken.key IS NULL), '{}'),
        coalesce(bool_or(taken.key IS NULL AND wanted.expect <> 0), false)
    INTO written_keys, written_versions, raced_groups, must_repeat
    FROM wanted LEFT JOIN taken ON taken.key = wanted.key;

    IF must_repeat THEN
        RAISE EXCEPTION 'a key appeared' USING ERRCODE = 'serialization_failure';
    END IF;
    IF raced_groups <> '{}' THEN
        refused_groups := refused_groups || raced_groups;
        DELETE FROM records r WHERE r.key = ANY (ARRAY(
            SELECT op.key FROM unnest(groups, keys) AS op(grp, key)
            WHERE op.grp = ANY (raced_groups) AND op.key = ANY (written_keys)
        ));
    END IF;

    WITH updated AS (
        UPDATE records AS r SET value = op.val, version = nextval('versions'), session = for_session
        FROM unnest(groups, kinds, keys, vals, found_versions) AS op(grp, kind, key, val, found)
        WHERE r.key = op.key AND r.key = ANY (keys)
            AND op.kind = 1 AND op.found IS NOT NULL AND op.grp <> ALL (refused_groups)
        RETURNING r.key, r.version
    )
    SELECT array_agg(updated.key), array_agg(updated.version) INTO updated_keys, updated_versions FROM updated;

    IF kinds && '{0, 2}' THEN
        DELETE FROM records r WHERE r.key = ANY (ARRAY(
            SELECT op.key FROM unnest(groups, kinds, keys, found_versions) AS op(grp, kind, key, found)
            WHERE op.grp <> ALL (refused_groups) AND (op.kind = 2 OR op.kind = 0 AND op.found IS NULL)
        ));
    END IF;

    IF refused_groups = '{}' THEN
        RETURN QUERY
        SELECT false, written.version, NULL::bytea
        FROM unnest(kinds, keys) WITH ORDINALITY AS op(kind, key, n)
        LEFT JOIN unnest(written_keys || updated_keys, written_versions || updated_versions) AS written(key, version)
            ON op.kind = 1 AND written.key = op.key
        ORDER BY op.n;
    ELSE
        -- What refused groups found is read in one statement, so that it is of one moment.
        RETURN QUERY
        SELECT
            op.grp = ANY (refused_groups),
            CASE WHEN op.grp = ANY (refused_groups) THEN r.version ELSE written.version END,
            r.value
        FROM unnest(groups, kinds, keys) WITH ORDINALITY AS op(grp, kind, key, n)
        LEFT JOIN unnest(written_keys || updated_keys, written_versions || updated_versions) AS written(key, version)
            ON op.kind = 1 AND written.key = op.key
        LEFT JOIN (SELECT * FROM records WHERE records.key = ANY (keys)) r
            ON r.key = op.key AND op.grp = ANY (refused_groups)
        ORDER BY op.n;
    END IF;
END
$$;


-- Remove the sessions that have expired, and their records; the keys of these are returned.
-- A session is only gone when this has committed: a renewal that comes first makes the locked row be left out.
CREATE FUNCTION sweep() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    expired text;
BEGIN
    FOR expired IN
        SELECT id FROM sessions WHERE expires_at <= clock_timestamp() ORDER BY id FOR UPDATE
    LOOP
        RETURN QUERY SELECT end_session(expired);
    END LOOP;
END
$$;


CREATE FUNCTION end_session(ended text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY DELETE FROM records WHERE session = ended RETURNING key;
    DELETE FROM sessions WHERE id = ended;
END
$$;
