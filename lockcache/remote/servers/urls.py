# SPDX-License-Identifier: Apache-2.0
"""URLs of servers: taken apart, with lockcache's own settings, and refused where they can only be a mistake.

A URL is checked without its client, which a process loads only when it needs the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from lockcache.arguments import configured_text

__all__ = ["SCHEMES", "RemoteUrl", "UrlSettingError", "configured_url", "parse_url"]

#: For how long a server that supports expiry keeps an entry that is neither stored again nor read.
_TTL_SECONDS: Final = 30 * 24 * 3600

#: By scheme: the module of the transport, what its client is imported as, and the extra that installs it.
SCHEMES: Final = {
    "redis": ("redis_server", "redis", "redis"),
    "rediss": ("redis_server", "redis", "redis"),
    "unix": ("redis_server", "redis", "redis"),
    "http": ("http_server", "urllib3", "http"),
    "https": ("http_server", "urllib3", "http"),
    "s3": ("object_store", "obstore", "s3"),
    "gs": ("object_store", "obstore", "s3"),
    "az": ("object_store", "obstore", "s3"),
}

_HOW_TO_QUOTE: Final = "in a password / ? # @ [ ] are written as %2F %3F %23 %40 %5B %5D"
# What stands behind the two slashes, where that is not a host.
_PLACES: Final = {"unix": "path", "s3": "bucket", "gs": "bucket", "az": "container"}

_YES: Final = ("1", "true", "yes")
_NO: Final = ("", "0", "false", "no")

# As many clients of Redis take it.
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:[0-9]{1,5}", re.ASCII)
_DATABASE: Final = re.compile(r"/?[0-9]*", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
# The settings of a client, and the form of those that are numbers.
_HTTP_SETTINGS: Final = {"ssl_ca_certs": None}
_REDIS_SETTINGS: Final = {
    "db": re.compile("[0-9]+", re.ASCII),
    **dict.fromkeys(("health_check_interval", "max_connections", "socket_connect_timeout", "socket_timeout"), _NUMBER),
    **dict.fromkeys(("client_name", "password", "protocol", "socket_keepalive", "username"), None),
    **dict.fromkeys(("ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile"), None),
    **dict.fromkeys(("ssl_check_hostname", "ssl_ciphers", "ssl_keyfile", "ssl_min_version", "ssl_password"), None),
    **dict.fromkeys(("ssl_validate_ocsp", "ssl_validate_ocsp_stapled"), None),
}


class UrlSettingError(ValueError):
    """A setting for the client that it would not understand. The URL names a server, which programs go on without."""


class RemoteUrl(NamedTuple):
    """A server's URL, taken apart."""

    scheme: str
    #: For the client: without lockcache's own settings.
    url: str
    #: Before each name.
    prefix: str
    ttl_seconds: int
    #: For people: without user, password and settings.
    shown: str
    #: Whether entries are sent to it. Otherwise they are read, and nothing is changed there.
    may_send: bool = True

    @property
    def may_lease(self) -> bool:
        """Whether servers of this kind can keep leases, and may be asked for one."""
        return self.may_send and not self.scheme.startswith("http")


def _refuse_without_place(scheme: str, place: str) -> None:
    if not place:
        wanted = _PLACES.get(scheme, "host")
        raise ValueError(f"url does not name a {wanted}; accepted: {scheme}://{wanted.upper()}")


def _refuse_slips(settings: Iterable[str], own: Iterable[str], shown: str) -> None:
    for name in settings:
        if close := _nearest(name, own):
            raise ValueError(f"{shown}: there is no setting {name!r}{close}")


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # 3 ms, where there are settings

    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def parse_url(url: object) -> RemoteUrl:
    """Take a URL apart. Raises :class:`TypeError`, or :class:`ValueError` that shows nothing of a password."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        where = f"[{host}]" if ":" in host else host
        where += "" if parts.port is None else f":{parts.port}"
    except ValueError:
        # Without the original message: it quotes what is in the host's place, such as half of a password.
        raise ValueError(f"url is not a URL of a host and a port; {_HOW_TO_QUOTE}") from None
    shown = f"{parts.scheme}://{where}{parts.path}"
    if parts.scheme not in SCHEMES:
        # The parts before an @ and after a ? may be a password.
        given = f"{parts.scheme}://" if "@" in url or "?" in url else url
        meant = f"; did you mean redis://{given[:80]}?" if _HOST_AND_PORT.fullmatch(given) else ""
        raise ValueError(f"{given[:80]!r} is not a URL that begins with {'://, '.join(SCHEMES)}://{meant}")
    if _is_torn(parts):
        raise ValueError(f"url has an @ behind its host; {_HOW_TO_QUOTE}")
    _refuse_without_place(parts.scheme, parts.path if parts.scheme == "unix" else host)
    own, rest = _settings(parts, shown)
    _refuse_what_the_client_would(parts, rest, shown)
    # Not urlunsplit, which takes the slashes from unix:///path.
    bare = url.partition("?")[0] + (f"?{urlencode(rest)}" if rest else "")
    may_send = own["read_only"] in _NO
    return RemoteUrl(parts.scheme, bare, own["prefix"], int(own["ttl"]), unquote(shown), may_send)


def _settings(parts: SplitResult, shown: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns lockcache's own settings, checked, and those for the client."""
    own = {"prefix": "lockcache:", "ttl": str(_TTL_SECONDS), "read_only": "0"}
    rest: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        (own if name in own else rest)[name] = value
    _refuse_slips(rest, own, shown)
    if not own["prefix"].isprintable() or not own["prefix"].isascii() or len(own["prefix"]) > 200:
        raise ValueError(f"{shown}: prefix must be printable ASCII of at most 200 characters")
    if not own["ttl"].isascii() or not own["ttl"].isdigit() or not 0 < int(own["ttl"][:12]) < 2**31:
        raise ValueError(f"{shown}: ttl must be a number of seconds, from 1 to 2147483647")
    if own["read_only"] not in (*_YES, *_NO):
        raise ValueError(f"{shown}: read_only must be 1 or 0")
    return own, rest


def _refuse_what_the_client_would(parts: SplitResult, settings: dict[str, str], shown: str) -> None:
    """Raise :class:`UrlSettingError` for what the client would take for something else, or fail on at each call.

    Object stores have many settings, whose names their client checks (:func:`.transport.refuse_settings`).
    """
    if parts.scheme in ("s3", "gs", "az"):
        endpoints = [value for name, value in settings.items() if name.lower().endswith(("endpoint", "endpoint_url"))]
        if not all(value.startswith(("http://", "https://")) for value in endpoints):
            raise UrlSettingError(f"{shown}: endpoint must begin with http:// or https://")
        return
    known = _HTTP_SETTINGS if parts.scheme.startswith("http") else _REDIS_SETTINGS
    for name, value in settings.items():
        if name not in known:
            raise UrlSettingError(f"{shown}: there is no setting {name!r}{_nearest(name, known)}")
        # Not the value, which may be a password in the wrong place.
        if known[name] and not known[name].fullmatch(value):  # type: ignore[union-attr]
            raise UrlSettingError(f"{shown}: {name} must be a number")
    if parts.scheme.startswith("redis") and not _DATABASE.fullmatch(parts.path):
        raise UrlSettingError(f"{shown}: what stands behind the host must be the number of a database")


def _is_torn(parts: SplitResult) -> bool:
    """Returns whether a password with an unescaped character may have spilled into host and path."""
    if parts.scheme in ("s3", "gs", "az") or (parts.scheme == "unix" and not parts.netloc):
        return False  # without a password, and an @ may be in a name
    return "@" in f"{parts.path}{parts.query.partition('=')[0]}{parts.fragment}"


def configured_url() -> RemoteUrl | None:
    """Returns the server in ``$LOCKCACHE_REMOTE``. Raises :class:`ValueError` naming the variable."""
    text = configured_text("LOCKCACHE_REMOTE")
    try:
        return parse_url(text) if text else None
    except ValueError as error:
        raise type(error)(f"LOCKCACHE_REMOTE: {error}") from None
