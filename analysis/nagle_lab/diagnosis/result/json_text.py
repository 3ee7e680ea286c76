"""JSON on one line, safe to show on a terminal."""

import json

import msgspec

_ENCODE = msgspec.json.Encoder().encode


def json_text(value: object) -> str:
    """One line of JSON; control characters that a terminal would act on are escaped, as ``\\u009b``: the
    same value.
    """
    try:
        text = _ENCODE(value).decode()
    except UnicodeEncodeError:  # the name of a file that is no text (PEP 383), which UTF-8 cannot have
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
