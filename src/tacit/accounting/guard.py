"""What the PostgreSQL server itself enforces for a ledger: roles, order and the total.

The owner of the schema is the steward. Analysts may read everything and append charges. Whatever a client
does, nobody can change or remove a line, charges come in serialisable transactions, each is signed with the
name of the login and the server's clock, each has its link in the chain, which the server makes itself, and
under the rule ``"sum"`` they never exceed the total. Whether a charge covers what its run does is Tacit's to check, in the client.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from tacit.accounting.server import SCHEMA

# The total that holds now: the last line of the raises, or of the book.
_TOTAL = (
    "SELECT epsilon, delta FROM (SELECT 0 AS id, epsilon, delta FROM book UNION ALL "
    "SELECT id, epsilon, delta FROM raises) AS totals ORDER BY id DESC LIMIT 1"
)
_NOW = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '+00:00'"""
_OF_KIND = "TABLE_OF_THE_KIND"  # stands for the table of the line that a link is of
# No value of a user is part of these texts.
_RULES = {
    "append_only": "RAISE EXCEPTION 'the ledger is append-only';",
    "admit_charge": f"""
        IF current_setting('transaction_isolation') <> 'serializable' THEN
            RAISE EXCEPTION 'charges need a serializable transaction';
        END IF;
        IF NEW.id <> (SELECT coalesce(max(id), 0) + 1 FROM charges) THEN
            RAISE EXCEPTION 'charges are numbered one after the other';
        END IF;
        NEW.time := {_NOW};
        {_TOTAL} INTO total;
        SELECT coalesce(sum(epsilon), 0) AS epsilon, coalesce(sum(delta), 0) AS delta
            FROM charges INTO spent;
        IF (SELECT rule FROM book) = 'sum' AND (
            spent.epsilon + NEW.epsilon > total.epsilon * (1 + 1e-9)
            OR spent.delta + NEW.delta > total.delta * (1 + 1e-9)
        ) THEN
            RAISE EXCEPTION 'too little is left of the total';
        END IF;
        RETURN NEW;""",  # noqa: S608
    "sign_entry": """
        IF EXISTS (SELECT FROM entries WHERE id >= NEW.id) THEN
            RAISE EXCEPTION 'entries come in the order of their charges';
        END IF;
        NEW.analyst := session_user;
        RETURN NEW;""",
    "admit_finish": f"""
        IF NEW.id <> (SELECT coalesce(max(id), 0) + 1 FROM finishes) THEN
            RAISE EXCEPTION 'results are numbered one after the other';
        END IF;
        IF NOT EXISTS (SELECT FROM entries WHERE id = NEW.charge AND analyst = session_user) THEN
            RAISE EXCEPTION 'a result is recorded by the login that was charged';
        END IF;
        NEW.time := {_NOW};
        RETURN NEW;""",  # noqa: S608
    "admit_raise": f"""
        NEW.time := {_NOW};
        NEW.steward := session_user;
        {_TOTAL} INTO total;
        IF NEW.epsilon < total.epsilon OR NEW.delta < total.delta THEN
            RAISE EXCEPTION 'a total can only be raised';
        END IF;
        RETURN NEW;""",
    # A wrong digest by an analyst would look like a line that was changed later, and block the ledger.
    "follow_chain": rf"""
        SELECT coalesce(max(id), 0) AS id FROM chain INTO last;
        SELECT hash FROM chain WHERE id = last.id INTO before;
        IF NEW.id <> last.id + 1 THEN
            RAISE EXCEPTION 'a link must follow from the one before it';
        END IF;
        IF NEW.kind NOT IN ('charge', 'entry', 'finish')
            AND NOT has_table_privilege(session_user, 'raises', 'INSERT') THEN
            RAISE EXCEPTION 'only the steward may add such a link';
        END IF;
        IF {_OF_KIND} IS NOT NULL THEN
            EXECUTE 'SELECT row_to_json(line)::text AS text FROM ' || {_OF_KIND}
                || ' AS line ORDER BY id OFFSET $1 LIMIT 1'
                INTO line USING (SELECT count(*) FROM chain WHERE kind = NEW.kind);
            IF line.text IS NULL THEN
                RAISE EXCEPTION 'a link needs its line';
            END IF;
            NEW.digest := sha256(convert_to(line.text, 'UTF8'));
        END IF;
        NEW.hash := sha256(
            coalesce(before.hash, ''::bytea) || '\x00'::bytea || convert_to(NEW.kind, 'UTF8')
            || '\x00'::bytea || NEW.digest
        );
        RETURN NEW;""",  # noqa: S608
    "need_link": """
        IF (SELECT count(*) FROM charges) <> (SELECT count(*) FROM chain WHERE kind = 'charge')
            OR NOT EXISTS (SELECT FROM entries WHERE id = NEW.id) THEN
            RAISE EXCEPTION 'a charge needs its entry and its link';
        END IF;
        RETURN NULL;""",
    "need_finish_link": """
        IF (SELECT count(*) FROM finishes) <> (SELECT count(*) FROM chain WHERE kind = 'finish') THEN
            RAISE EXCEPTION 'a result needs its link';
        END IF;
        RETURN NULL;""",
    "need_line": """
        IF (SELECT count(*) FROM charges) <> (SELECT count(*) FROM chain WHERE kind = 'charge')
            OR (SELECT count(*) FROM entries) <> (SELECT count(*) FROM chain WHERE kind = 'entry')
            OR (SELECT count(*) FROM finishes) <> (SELECT count(*) FROM chain WHERE kind = 'finish') THEN
            RAISE EXCEPTION 'a link needs its line';
        END IF;
        RETURN NULL;""",
}
_TABLES = ("book", "charges", "entries", "finishes", "raises", "chain")
_TRIGGERS = {
    "admit_charge": "BEFORE INSERT ON charges",
    "sign_entry": "BEFORE INSERT ON entries",
    "admit_finish": "BEFORE INSERT ON finishes",
    "admit_raise": "BEFORE INSERT ON raises",
    "follow_chain": "BEFORE INSERT ON chain",
    "need_link": "AFTER INSERT ON charges DEFERRABLE INITIALLY DEFERRED",
    "need_finish_link": "AFTER INSERT ON finishes DEFERRABLE INITIALLY DEFERRED",
    "need_line": "AFTER INSERT ON chain DEFERRABLE INITIALLY DEFERRED",
}
_GRANTS = (
    "USAGE ON SCHEMA {schema}",
    "SELECT ON ALL TABLES IN SCHEMA {schema}",
    "INSERT ON {schema}.charges, {schema}.entries, {schema}.finishes, {schema}.chain",
    "UPDATE ON {schema}.turn",  # it has no columns: this only allows to lock it
)


def open_schema(connection: sa.Connection) -> None:
    """Creates the schema, which belongs to whoever creates it: the steward."""
    for statement in (
        f"CREATE SCHEMA {SCHEMA}",
        f"REVOKE ALL ON SCHEMA {SCHEMA} FROM PUBLIC",
        f"CREATE TABLE {SCHEMA}.turn ()",
    ):
        connection.exec_driver_sql(statement)


def enforce(connection: sa.Connection, kinds: Mapping[str, sa.Table]) -> None:
    """Creates the triggers, once the tables are there: each with the kind of its lines in the chain."""
    tables = " ".join(f"WHEN '{kind}' THEN '{table.name}'" for kind, table in kinds.items())
    for name, rule in _RULES.items():
        body = rule.replace(_OF_KIND, f"(CASE NEW.kind {tables} END)")
        connection.exec_driver_sql(
            f"CREATE FUNCTION {SCHEMA}.{name}() RETURNS trigger LANGUAGE plpgsql "
            f"SET search_path = {SCHEMA}, pg_temp SET extra_float_digits = 1 AS "
            f"$rule$ DECLARE total record; spent record; last record; before record; line record; BEGIN {body} END $rule$"
        )
    for name, when in _TRIGGERS.items():
        kind = "CONSTRAINT TRIGGER" if "DEFERRABLE" in when else "TRIGGER"
        connection.exec_driver_sql(
            f"CREATE {kind} {name} {when} FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.{name}()"
        )
    for table in _TABLES:
        connection.exec_driver_sql(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {SCHEMA}.append_only()"
        )


def admit(connection: sa.Connection, roles: Sequence[str]) -> None:
    """Lets roles, which must exist, charge and read."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    for role in roles:
        for grant in _GRANTS:
            connection.exec_driver_sql(f"GRANT {grant.format(schema=SCHEMA)} TO {quote(role)}")
