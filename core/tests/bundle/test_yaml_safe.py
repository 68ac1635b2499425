from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactant_core.bundle.yaml_safe import MAX_BYTES, MAX_NODES, YamlError, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("y", "y"),
        ("NO", "NO"),
        ("true", True),
        ("False", False),
        ("'true'", "true"),
        ("! true", "true"),
        ("!!str 12", "12"),
        ("~", None),
        ("null", None),
        ("''", ""),
        ("12", 12),
        ("-1", -1),
        ("+7", 7),
        ("012", 12),
        ("0o17", 15),
        ("0xff", 255),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-02", "2024-01-02"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_plain_scalars_are_read_as_yaml_1_2(text: str, value: object) -> None:
    got = parse_yaml(f"[{text}]".encode()).value
    assert isinstance(got, list)
    assert got == [value]
    assert type(got[0]) is type(value)


def test_collections_keys_and_aliases() -> None:
    text = b"no: &a {1: [x, y]}\ntrue: *a\nn: {}\ne: []\n? q\n: 2\n"
    assert parse_yaml(text).value == {
        "no": {"1": ["x", "y"]},
        "true": {"1": ["x", "y"]},
        "n": {},
        "e": [],
        "q": 2,
    }


def test_a_byte_order_mark_and_an_empty_document_are_accepted() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1").value == {"a": 1}
    assert parse_yaml(b"# nothing\n").value is None


def test_l12_repeated_keys_are_all_named_and_the_first_counts() -> None:
    document = parse_yaml(b"a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert document.value == {"a": 1, "b": {"c": 1}}
    assert document.faults == ("line 2: key 'c' is given twice", "line 3: key 'a' is given twice")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b"a: !!python/object:os.system x",
            "tag 'tag:yaml.org,2002:python/object:os.system' is not accepted",
        ),
        (b"a: !!python/object/apply:os.system [x]", "is not accepted"),
        (b"a: !!binary aGk=", "is not accepted"),
        (b"a: !!set {x}", "is not accepted"),
        (b"a: !mine x", "tag '!mine' is not accepted"),
        (b"a: 1\n---\nb: 2\n", "line 2: a second document"),
        (b"a: *b", "alias 'b' has no complete anchor"),
        (b"a: &a [*a]", "alias 'a' has no complete anchor"),
        (b"[1]: 2", "key must be a plain name"),
        (b"a: &x y\n*x : 2", "key must be a plain name"),
        (b"a: [1", "not valid YAML"),
        (b"a: \x00", "not valid YAML"),
        (b"a: \xff", "not UTF-8 text (byte 3)"),
        ("a: b".encode("utf-16"), "not UTF-8 text"),
        (b'a: "\\ud800"', "not valid YAML"),
        (b"a: " + b"9" * 1000, "a number of 1000 characters"),
        (b"x: %s%s" % (b"[" * 64, b"]" * 64), "more than 64 levels"),
        (b"a: &a %s%s\nb: %s*a%s" % (b"[" * 40, b"]" * 40, b"[" * 30, b"]" * 30), "more than 64 levels"),
    ],
)
def test_refused_documents_name_the_place(text: bytes, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert message in str(caught.value)


def test_64_levels_are_accepted() -> None:
    value: object = parse_yaml(b"[" * 64 + b"]" * 64).value
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else None
    assert depth == 64


def test_the_limit_counts_what_aliases_stand_for() -> None:
    row = f"a: &a [{','.join('x' * (MAX_NODES // 10))}]\n"
    within = row + f"b: [{','.join(['*a'] * 8)}]"
    assert isinstance(parse_yaml(within.encode()).value, dict)
    with pytest.raises(YamlError, match="aliases expanded"):
        parse_yaml((row + f"b: [{','.join(['*a'] * 10)}]").encode())


def _filled(unit: bytes, head: bytes = b"", tail: bytes = b"") -> bytes:
    return head + unit * ((MAX_BYTES - len(head) - len(tail)) // len(unit)) + tail


def _alias_bomb() -> bytes:
    lines = [f"a0: &a0 [{','.join('x' * 9)}]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    return "\n".join(lines).encode()


HOSTILE = {
    "aliases of aliases": _alias_bomb(),
    "brackets": b"a: " + b"[" * 5000 + b"]" * 5000,
    "braces": b"{a: " * 5000,
    "indentation": b"".join(b" " * i + b"a:\n" for i in range(1300)),
    "dashes": _filled(b"- "),
    "items": _filled(b"a,", b"x: [", b"]"),
    "empty lists": _filled(b"[],", b"x: [", b"]"),
    "equal keys": _filled(b"k: 1\n"),
    "anchors": b"".join(b"- &a%d x\n" % i for i in range(60_000)),
    "documents": _filled(b"---\n"),
    "tag directives": b"".join(b"%%TAG !a%d! tag:x\n" % i for i in range(50_000)) + b"--- a",
    "digits": _filled(b"9", b"a: "),
    "complex keys": _filled(b"? "),
    "too large": b"#" * (MAX_BYTES + 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_l12_hostile_text_is_refused_within_a_second(kind: str) -> None:
    begin = time.process_time()
    with pytest.raises(YamlError):
        parse_yaml(HOSTILE[kind])
    assert time.process_time() - begin < 1


def message_if_any(data: bytes) -> str | None:
    try:
        parse_yaml(data)
    except YamlError as error:
        return str(error)
    return None


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_document_or_a_yaml_error(data: bytes) -> None:
    message = message_if_any(data)
    assert message is None or (message and "\n" not in message)


_TEXT = st.text("abno:-[]{},&*!|>'\"%#? \n\t0x1.", max_size=80)


@pytest.mark.slow
@settings(deadline=None)
@given(_TEXT)
def test_any_yaml_like_text_gives_a_document_or_a_yaml_error(text: str) -> None:
    assert message_if_any(text.encode()) != ""
