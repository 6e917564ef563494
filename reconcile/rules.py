"""The rules: SQL files that return what breaks an invariant, with a header that explains it.

A rule's query gives one row per violation with the columns `severity`, `engine`, `seq` (orders
the rows of an engine) and `sentence`. It reads the tables of the replay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from vstate.schemas.errors import VstateError
from vstate.schemas.summary import Finding, Severity

RULES_FOLDER = Path(__file__).parent / "rules"
SENTENCES = 3
"""Violations of a rule that are told in full."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From the least to the most severe."""

_HEADER_LINE = re.compile(r"--\s(?P<key>[a-z]+): (?P<value>.+)")
_CONTINUATION = re.compile(r"--\s{3}(?P<value>\S.*)")


@dataclass(frozen=True)
class Rule:
    """A rule as its file declares it.

    Attributes:
        id: Id of the invariant.
        title: Its name.
        severity: The most severe finding it can make.
        evidence: `observed`, `derived` or `needs audit`.
        proves: What holds where it finds nothing.
        reports: Public reports of what it finds.
        action: What to do about a finding.
        query: The SQL.
    """

    id: str
    title: str
    severity: Severity
    evidence: str
    proves: str
    reports: tuple[str, ...]
    action: str
    query: str


def read_rules(folder: Path = RULES_FOLDER) -> tuple[Rule, ...]:
    """Return the rules of a folder in the order of their file names.

    Raises:
        VstateError: A header is not of the format.
    """
    return tuple(parse_rule(path) for path in sorted(folder.glob("*.sql")))


def parse_rule(path: Path) -> Rule:
    """Read one rule.

    Raises:
        VstateError: Its header is not of the format.
    """
    text = path.read_text(encoding="utf-8")
    header: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if entry := _HEADER_LINE.fullmatch(line):
            key = entry["key"]
            header[key] = entry["value"]
        elif key and (more := _CONTINUATION.fullmatch(line)):
            header[key] += " " + more["value"]
        else:
            break
    expected = [field.name for field in fields(Rule) if field.name != "query"]
    if list(header) != expected:
        raise VstateError(f"{path} must begin with comments for {', '.join(expected)}")
    severity = next((known for known in SEVERITIES if known == header["severity"]), None)
    if severity is None:
        raise VstateError(f"{path}: severity must be one of {', '.join(SEVERITIES)}")
    return Rule(
        id=header["id"],
        title=header["title"],
        severity=severity,
        evidence=header["evidence"],
        proves=header["proves"],
        reports=tuple(header["reports"].split(", ")),
        action=header["action"],
        query=text,
    )


def apply_rule(connection: Any, rule: Rule) -> list[Finding]:
    """Return the findings of a rule, the most severe first: one for each severity."""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE violations AS {rule.query}")
    counts = dict(connection.execute("SELECT severity, count(*) FROM violations GROUP BY severity").fetchall())
    findings = []
    for severity in reversed(SEVERITIES):
        if severity not in counts:
            continue
        sentences = connection.execute(
            "SELECT sentence FROM violations WHERE severity = ? ORDER BY engine, seq, sentence LIMIT ?",
            [severity, SENTENCES],
        ).fetchall()
        told = [sentence for (sentence,) in sentences]
        if counts[severity] > len(told):
            told.append(f"{counts[severity] - len(told)} more like this.")
        findings.append(
            Finding(
                rule=rule.id,
                title=rule.title,
                severity=severity,
                evidence=rule.evidence,
                count=counts[severity],
                sentence=" ".join(told),
                action=rule.action,
            )
        )
    return findings
