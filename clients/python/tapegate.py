#!/usr/bin/env python3
"""A Tapegate client in one file, for Python 3.9 and newer, without dependencies. Import it as a module, or run it as a command.

    from tapegate import Tapegate

    tapes = Tapegate("https://tapes.example.org")      # or TAPEGATE_URL, or `server` in config.json
    for path in tapes.restore("alice", pattern="/ocean/2024/"):
        print(path)

The client uses GraphQL; `query` runs any document. Sizes are integers in bytes, times are RFC 3339 strings in UTC. A request that the gateway
rejects raises a subclass of `Refused`, such as `QuotaExceeded`, with the fields of the failure. An unreachable gateway raises `OSError`.
If the response is not from a gateway, but for example from a proxy that shows a login page, its subclass `UnexpectedResponse` is raised.

The token comes from `token=`, from TAPEGATE_TOKEN, or from `tapegate login`. `python3 tapegate.py --help` lists the commands.
"""

from __future__ import annotations

import argparse
import collections.abc
import datetime
import http.client
import ipaddress
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import socket
import ssl
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any, Callable, Iterable, Iterator, Optional, Union

__all__ = ["EventsGone", "Forbidden", "InUse", "Incomplete", "InvalidInput", "LimitReached", "NotFound", "NotOnDisk", "QuotaExceeded", "Refused",
           "Tapegate", "UnexpectedResponse", "UnknownUser", "WrongQuota"]

#: The version of Tapegate that this file belongs to.
__version__ = "1.0.0"

Path = Union[str, "os.PathLike[str]"]
Paths = Union[Path, Iterable[Path]]

#: Name of this program in messages.
PROGRAM = "tapegate.py" if __name__ == "__main__" else "tapegate-py"

#: BigInt fields of the schema. JSON contains them as strings, because many JSON parsers round large numbers.
INTEGERS = {
    "available", "bytes", "bytesAlsoRequested", "bytesAtPrimaryPath", "bytesBlocked", "bytesOnDisk",
    "bytesRestored", "bytesRunning", "bytesToRecall", "bytesTotal", "bytesWaiting", "copyPosition",
    "depthBytes", "eventId", "free", "maxBytes", "position", "quotaSize", "quotaUsed", "quotaUsedAfter",
    "requestFiles", "requested", "reserved", "sent", "size", "stagedBytes", "totalBytes", "used",
}

#: Timeouts in seconds: for a response, and between two events of a stream, which sends at least one every 12 seconds.
RESPONSE_SECONDS = 120
SILENCE_SECONDS = 40

LONGEST_PAUSE_SECONDS = 30

#: Pauses before a call is repeated for the first and the second time.
REPEAT_PAUSES_SECONDS = [1, 5]

#: End of messages about a response that is not from a gateway.
ADVICE = "check the URL of the gateway, and whether a proxy requires a login"

#: A pattern that every archive path contains.
EVERY_PATH = "/"

STATES = ["QUEUED", "RESTORING", "COMPLETED", "PARTIAL", "EXPIRED", "CANCELLED"]
LIVE_STATES, FINISHED_STATES, RELEASED_STATES = STATES[:4], STATES[2:], STATES[4:]

#: Exit codes, as of the `tapegate` command.
FAILED, USAGE, INCOMPLETE, UNREACHABLE = 1, 2, 3, 4

STAGES = {"U": "UNVERIFIED", "D": "ONDISK", "T": "ONTAPE", "A": "RESTORING", "R": "RESTORED"}

#: Commands that a script must not repeat if the gateway might have processed them.
CHANGES = {"request", "update", "extend", "retry", "cancel", "release"}

ONLY_LOGGED = "email is only logged at this site, because no SMTP server is configured"

#: Maximum number of failed files, and of missing paths, in a message.
NAMED_FAILED, NAMED_MISSING = 2, 20

#: Maximum number of lines in a list for people.
PEOPLE_LIMIT = 1000

#: Seconds between two progress lines in a log, and seconds without a response after which `watch` fails.
LOG_SECONDS, PATIENCE_SECONDS = 2, 120
MIN_ELAPSED_SECONDS = 10

#: Characters that move the cursor of a terminal, begin a line, or change the direction of text.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

REQUEST = """requestId label pattern state priority createdAt retention notifyOnFirstFile notifyOnLastFile maxFiles maxBytes filesTotal filesOnDisk
  filesAtPrimaryPath filesFailed filesUnknown filesRefused filesOverLimit filesReleased bytesTotal bytesOnDisk restoredBelow
  quota { user suspension { mode reason } }"""

ERRORS = """errors { code message ... on InvalidInput { field } ... on QuotaExceeded { user requested available size used }
  ... on LimitReached { user limit present added allowed } ... on UnknownUser { user } }"""


class Refused(Exception):
    """Raised if the gateway rejects a request or cannot process it. Failures with a code of the schema have a subclass."""

    #: Error code, such as NOT_FOUND or UNAUTHENTICATED.
    code: Optional[str] = None

    def __init__(self, message: str, code: Optional[str] = None, failure: Optional[dict[str, Any]] = None) -> None:
        super().__init__(message)
        #: All fields of the GraphQL failure. They are also attributes of the exception.
        self.failure = failure or {}
        vars(self).update(self.failure)
        if code:
            self.code = code


class QuotaExceeded(Refused):
    """Raised if the requested files do not fit into the quota. Sizes are in bytes."""

    code = "QUOTA_EXCEEDED"
    user: str
    requested: int
    available: int
    size: int
    used: int


class InvalidInput(Refused):
    """Raised if a value is missing, malformed or out of range."""

    code = "INVALID_INPUT"
    #: Name of the invalid input field, if the gateway names it.
    field: Optional[str] = None


class LimitReached(Refused):
    """Raised if the user has reached a limit of the site."""

    code = "LIMIT_REACHED"
    user: str
    limit: str
    present: int
    added: int
    allowed: int


class UnknownUser(Refused):
    """Raised if the named user has no quota."""

    code = "UNKNOWN_USER"
    user: str


class NotFound(Refused):
    """Raised if an object does not exist, or the caller is not allowed to see it."""

    code = "NOT_FOUND"


class Forbidden(Refused):
    """Raised if the caller lacks permission for the operation."""

    code = "FORBIDDEN"


class InUse(Refused):
    """Raised if the object is still in use."""

    code = "IN_USE"


class WrongQuota(Refused):
    """Raised if the request belongs to another quota."""

    code = "WRONG_QUOTA"


class EventsGone(Refused):
    """Raised if the gateway no longer stores the requested events."""

    code = "EVENTS_GONE"


def _refused(message, code=None, failure=None):
    """Returns the exception for an error code."""
    return {each.code: each for each in Refused.__subclasses__()}.get(code, Refused)(message, code, failure)


class Incomplete(Exception):
    """Raised if a request has ended without all of its files."""

    def __init__(self, message: str, failed: Optional[list[dict[str, str]]] = None) -> None:
        super().__init__(message)
        #: The failed files, each with path, errorClass and error.
        self.failed = failed or []


class UnexpectedResponse(OSError):
    """Raised if the response is not from a Tapegate gateway, but for example from a proxy's login page. A retry does not help."""


class _Unavailable(ConnectionError):
    """Raised if the gateway reports that it cannot process a request now."""


class NotOnDisk(Exception):
    """Raised if files of a request are no longer on disk, for example because a copy was removed outside Tapegate, or because a disk fails."""

    def __init__(self, message: str, paths: list[str]) -> None:
        super().__init__(message)
        #: Archive paths of the files.
        self.paths = paths


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, because another host would receive the token."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


class Tapegate:
    """A connection to one gateway with one token. Several threads may use one object."""

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, ca_file: Optional[str] = None) -> None:
        """Connects to `url`, or else to TAPEGATE_URL, or to `server` in config.json.

        `ca_file`: certificates of the accepted authorities, instead of the system's. Raises ValueError for an invalid URL or config.json.
        """
        self.url = _checked_url(url or os.environ.get("TAPEGATE_URL") or _own_settings().get("server") or "http://127.0.0.1:8080")
        self.token = token or os.environ.get("TAPEGATE_TOKEN") or _stored_token(self.url)
        tls = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file))] if self.url.startswith("https:") else []
        self._http = urllib.request.build_opener(_NoRedirects, *tls)

    # requests

    def restore(self, quota: str, files: Optional[Paths] = None, pattern: Optional[str] = None, **options: Any) -> Iterator[str]:
        """Requests files, and returns `arrivals` of the new request. Takes the arguments of `create_request`."""
        return self.arrivals(self.create_request(quota, files, pattern, **options)["requestId"])

    def create_request(self, quota: str, files: Optional[Paths] = None, pattern: Optional[str] = None, **options: Any) -> dict[str, Any]:
        """Requests files by path, or all files whose path contains a pattern.

        files: an iterable of strings or path objects; a single string is one path.
        options: label, retention, maxFiles, maxBytes, notifyOnFirstFile, notifyOnLastFile, idempotencyKey (default: random). A retention is a datetime, a date or an
        RFC 3339 string. A datetime without a time zone is UTC (use datetime.now(timezone.utc), not now()); a date is midnight UTC.
        If no response arrives, the call is repeated twice. Because of the idempotencyKey, the calls create only one request.
        """
        options["idempotencyKey"] = options.get("idempotencyKey") or str(uuid.uuid4())
        # an iterator yields its items only once, and the gateway rejects a repeated call with another input
        text = json.dumps(_given({"quota": quota, "files": files, "pattern": pattern, **options}), default=_json_value)
        chosen = json.loads(text)
        for pause in REPEAT_PAUSES_SECONDS:
            try:
                return self._change_request("createRequest", chosen)
            except UnexpectedResponse:
                raise
            except OSError:
                time.sleep(pause)
            except Refused as error:
                if error.code != "UNCONFIRMED":
                    raise
                time.sleep(pause)
        return self._change_request("createRequest", chosen)

    def estimate(self, quota: str, files: Optional[Paths] = None, pattern: Optional[str] = None, **options: Any) -> dict[str, Any]:
        """Estimates a request, without creating it. Takes the arguments of `create_request`."""
        chosen = _with_text_sizes(_given({"quota": quota, "files": files, "pattern": pattern, **options}))
        document = """query ($input: CreateRequestInput!) { estimateRequest(input: $input) { estimate {
          fileCount bytes filesOnDisk bytesOnDisk filesAtPrimaryPath filesAlsoRequested bytesAlsoRequested filesToRecall bytesToRecall filesOnTheirWay
          filesWithoutPlace filesUnknown unknownPaths volumeCount volumesSuspended mountCount user quotaSize quotaUsed quotaUsedAfter fitsQuota hasRoom
          endUnknown end { at earliest planned latest isMeasured } price { amount currency } prices { libraryName fileCount bytes amount currency note } } %s } }""" % ERRORS
        return _accepted(self._ask("estimateRequest", document, input=chosen))["estimate"]

    def request(self, request_id: int) -> Optional[dict[str, Any]]:
        """Returns a request, or None if it does not exist or the caller is not allowed to see it."""
        return self._ask("request", """query ($id: Int!) { request(requestId: $id) { %s waiting { at queuePosition endUnknown
          end { at earliest planned latest isMeasured } parts(first: 100) { edges { node { volumeName reason explanation fileCount } } } } } }""" % REQUEST, id=request_id)

    def requests(self, quota: Optional[str] = None, states: Optional[Iterable[str]] = None, match: Optional[str] = None) -> Iterator[dict[str, Any]]:
        """Yields the requests that the caller may see, oldest first. By default, yields only requests that have not expired or been cancelled.

        match: part of the label, of the pattern, or of a file's path.
        """
        document = """query ($quota: String, $states: [RequestState!], $match: String, $after: String) {
          page: requests(quota: $quota, states: $states, match: $match, orderBy: {field: CREATED_AT, direction: ASC}, first: 100, after: $after) {
            pageInfo { hasNextPage endCursor } edges { node { %s } } } }""" % REQUEST
        return self._pages("page", document, quota=quota, states=states, match=match)

    def update(self, request_id: int, **changes: Any) -> dict[str, Any]:
        """Changes a request. changes: the options of `create_request`, and expectedQuota, the user that the quota must belong to. None removes a limit or an email address."""
        return self._change_request("updateRequest", {"requestId": request_id, **changes})

    def extend(self, request_id: int, until: Union[str, datetime.date]) -> dict[str, Any]:
        """Changes the time when a request expires."""
        return self.update(request_id, retention=until)

    def retry(self, request_id: int, quota: Optional[str] = None) -> dict[str, Any]:
        """Retries the failed files of a request. Raises WrongQuota if the request does not belong to the given quota."""
        return self._change_request("retryRequest", _given({"requestId": request_id, "expectedQuota": quota}))

    def release(self, request_id: int, match: Optional[str] = None, paths: Optional[Paths] = None, all: bool = False) -> dict[str, Any]:
        """Releases files before the request ends: files whose path contains `match`, the given paths, or all files. Raises ValueError without a choice."""
        if [match is not None, paths is not None, all].count(True) != 1:
            raise ValueError("release requires exactly one of match, paths and all=True")
        return self._change_request("releaseFiles", _given({"requestId": request_id, "match": EVERY_PATH if all else match, "paths": paths}))

    def cancel(self, request_id: int) -> dict[str, Any]:
        """Cancels a request and removes its files from disk."""
        return self._change_request("cancelRequest", {"requestId": request_id})

    def request_files(self, request_id: int, states: Optional[Iterable[str]] = None) -> Iterator[dict[str, Any]]:
        """Yields the files of a request, each with state, error, errorClass and file { path size restoredPath }."""
        document = """query ($id: Int!, $states: [RequestFileState!], $after: String) { request(requestId: $id) {
          files(first: 500, after: $after, states: $states) { pageInfo { hasNextPage endCursor }
            edges { node { state size error errorClass lastError lastErrorClass nextTryAt attempts recallState
              file { path size stage restoredPath isAtPrimaryPath checksum adler32 volume { name suspension { mode reason } }
                disk { mountpoint suspension { nextTryAt reason } } } } } } } }"""
        return self._pages("request", document, lambda found: _existing(request_id, found)["files"], id=request_id, states=states)

    def failed_files(self, request_id: int) -> Iterator[dict[str, str]]:
        """Yields the failed files of a request, each with path, errorClass and error."""
        for item in self.request_files(request_id, states=["FAILED"]):
            yield {"path": item["file"]["path"], "errorClass": item["errorClass"], "error": item["error"]}

    def restored_paths(self, request_id: int) -> Iterator[str]:
        """Yields the paths on disk of a request's files. At the end, raises NotOnDisk if files are missing, released or on a failing disk."""
        request = self._ask("request", "query ($id: Int!) { request(requestId: $id) { state } }", id=request_id)
        state = request and request["state"]
        is_released = state in RELEASED_STATES
        lost, reasons = [], collections.Counter()
        for item in self.request_files(request_id, states=["ON_DISK"]):
            path = None if is_released else _path_on_disk(item["file"])
            if path is None:
                lost.append(item["file"]["path"])
                why = "released because the request is %s" % state.lower() if is_released else _why_lost(item["file"]["disk"])
                reasons[why] += 1
            else:
                yield path
        if lost:
            lines = ["%s of request %d %s %s" % (_plural(count, "file"), request_id, "is" if count == 1 else "are", why)
                     for why, count in reasons.items()]
            raise NotOnDisk("\n".join(lines), lost)

    def arrivals(self, request_id: int) -> Iterator[str]:
        """Yields the path on disk of each file of a request when the file arrives, until the request has finished. Reconnects after network errors.

        At the end, raises Incomplete if files failed or are missing, and NotOnDisk if files are no longer on disk.
        """
        seen, lost = set(), None
        while True:
            for step in self.follow(request_id):
                began = time.monotonic()
                paths, lost = self._persist(lambda: self._list_restored(request_id))
                pause = min(9 * (time.monotonic() - began), LONGEST_PAUSE_SECONDS)
                for path in paths:
                    if path not in seen:
                        seen.add(path)
                        yield path
                if time.monotonic() - began > 1 and step["state"] not in FINISHED_STATES:
                    # skip the progress of the meantime: a new subscription begins with the current progress
                    time.sleep(pause)
                    break
            else:
                break
        self._persist(lambda: self._require_complete(request_id))
        if lost:
            raise lost

    def follow(self, request_id: int, on_outage: Optional[Callable[[OSError], object]] = None, patience: float = math.inf) -> Iterator[dict[str, Any]]:
        """Yields each progress event of a request until it is finished. Reconnects after errors, without missing or repeating events.

        on_outage: a function that is called with the OSError when the gateway stops responding, once per outage.
        patience: seconds without a response after which the OSError is raised.
        Raises Refused and UnexpectedResponse, because another attempt would fail as well.
        """
        document = """subscription ($id: Int!, $after: BigInt) { requestProgress(requestId: $id, after: $after) {
          eventId requestId state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk bytesPerSecond elapsedSeconds end { at earliest planned latest isMeasured } at } }"""
        after, tries, since = None, 0, 0.0
        while True:
            try:
                for data in self.subscribe(document, id=request_id, after=after):
                    step = self._field("requestProgress", data)
                    after, tries = str(step["eventId"]), 0
                    yield step
                return
            except UnexpectedResponse:
                raise
            except OSError as error:  # the gateway may be restarting
                since = since if tries else time.monotonic()
                if time.monotonic() - since > patience:
                    raise
                if tries == 0 and on_outage:
                    on_outage(error)
            time.sleep(min(LONGEST_PAUSE_SECONDS, 2 ** tries))
            tries += 1

    def _persist(self, call):
        """Returns the result of a call. Repeats the call until the gateway responds."""
        for tries in itertools.count():
            try:
                return call()
            except UnexpectedResponse:
                raise
            except OSError:
                time.sleep(min(LONGEST_PAUSE_SECONDS, 2 ** tries))

    def _list_restored(self, request_id):
        """Returns the paths on disk, and NotOnDisk or None."""
        paths = []
        try:
            for path in self.restored_paths(request_id):
                paths.append(path)
        except NotOnDisk as error:
            return paths, error
        return paths, None

    def _require_complete(self, request_id):
        """Raises Incomplete, with the failed or missing files, if a request has ended without all of its files."""
        request = _existing(request_id, self.request(request_id))
        line = "request %d is %s" % (request_id, request["state"].lower())
        if request["state"] == "PARTIAL":
            failed = list(self.failed_files(request_id))
            named = ["%s: %s" % (each["path"], each["error"] or "failed") for each in failed[:NAMED_FAILED]]
            lines = ["%s: %d of %s failed" % (line, request["filesFailed"], _plural(request["filesTotal"], "file")), *_listed(named, len(failed)),
                     '"%s show %d" lists the failed files, "%s retry %d" retries them' % (PROGRAM, request_id, PROGRAM, request_id)]
            raise Incomplete("\n".join(map(_printable, lines)), failed)
        if request["state"] != "COMPLETED":
            raise Incomplete(line)
        _require_none_missing(request_id, self._missing(request_id))

    def _missing(self, request_id):
        """Returns lines about missing files. Files beyond the request's own limits do not count."""
        request = _existing(request_id, self._ask("request", """query ($id: Int!, $first: Int!) { request(requestId: $id) { state retention pattern filesTotal
          filesReleased filesUnknown filesRefused unresolved(first: $first) { edges { node { path reason } } } } }""", id=request_id, first=NAMED_MISSING))
        unresolved = [edge["node"] for edge in request["unresolved"]["edges"]]
        is_live, end = request["state"] in LIVE_STATES, _whole_time(request["retention"])
        if request["pattern"] and request["filesTotal"] + request["filesReleased"] == 0 and not unresolved:
            if not is_live:
                return [_no_match(request["pattern"])]
            return ['request %d matches no file yet: no path contains %s%s. The request stays active until %s, and adds matching files that appear in '
                    'the catalogue; "%s cancel %d" ends it' % (request_id, _quote(request["pattern"]), _hint([request["pattern"]]), end, PROGRAM, request_id)]
        unknown, refused = request["filesUnknown"], request["filesRefused"]
        lines = []
        if unknown > 0:
            heading = "%d of the request's paths %s not in the catalogue" % (unknown, "is" if unknown == 1 else "are")
            lines += self._unknown(heading, [each["path"] for each in unresolved if each["reason"] == "UNKNOWN"], unknown)
        if refused > 0:
            lines += ["%d of the request's files did not fit into the quota:" % refused,
                      *_listed([each["path"] for each in unresolved if each["reason"] == "QUOTA_FULL"], refused)]
        if lines and is_live:
            joins = ["appear in the catalogue"] * (unknown > 0) + ["fit into the quota"] * (refused > 0)
            lines.append('request %d stays active until %s: files that later %s are added, and charged to the quota; "%s cancel %d" ends it' % (
                request_id, end, " or ".join(joins), PROGRAM, request_id))
        return lines

    def _unknown(self, heading, paths, count):
        """Returns a heading and lines that name unknown paths, and which of the first few are directories."""
        named = list(paths)
        for n, path in enumerate(paths[:5]):
            try:
                if any(file["path"].startswith(path + "/") for file in itertools.islice(self.files(path + "/"), 20)):
                    named[n] = "%s (a directory: use --pattern %s for its files)" % (path, _quote(path + "/"))
            except Refused:
                pass  # with the slash, the path may be too long for a search
        return ["%s%s:" % (heading, _hint(paths)), *_listed(named, count)]

    # catalogue and quotas

    def files(self, match: Optional[str] = None, stages: Optional[Iterable[str]] = None, withdrawn: bool = False) -> Iterator[dict[str, Any]]:
        """Yields the files in the catalogue whose path contains `match`, ordered by path."""
        document = """query ($match: String, $stages: [Stage!], $withdrawn: Boolean, $after: String) {
          page: tapeFiles(match: $match, stages: $stages, onlyWithdrawn: $withdrawn, first: 500, after: $after, count: ESTIMATED) {
            pageInfo { hasNextPage endCursor }
            edges { node { path size stage restoredPath isAtPrimaryPath checksum adler32 withdrawnReason } } } }"""
        return self._pages("page", document, match=match, stages=stages, withdrawn=withdrawn)

    def sends_email(self) -> bool:
        """Returns whether the site sends email. If not, it only writes emails to its log."""
        return self._ask("isEmailSent", "{ isEmailSent }")

    def quota(self, user: str) -> Optional[dict[str, Any]]:
        """Returns a quota, or None if it does not exist or the caller is not allowed to see it."""
        return self._ask("quota", "query ($user: String!) { quota(user: $user) { user size used weight email notes } }", user=user)

    # GraphQL

    def query(self, document: str, **variables: Any) -> dict[str, Any]:
        """Returns the data of a query or mutation. Raises Refused, OSError if the gateway is unreachable, or its subclass UnexpectedResponse."""
        with self._post("/graphql", document, variables, "application/json", RESPONSE_SECONDS) as response:
            try:
                return _data_of(response.read())
            except http.client.HTTPException as error:
                raise ConnectionError("the response ended early") from error
            except ValueError as error:
                raise self._unexpected(response, "a GraphQL response") from error

    def subscribe(self, document: str, **variables: Any) -> Iterator[dict[str, Any]]:
        """Yields each result of a subscription until the gateway completes it. Raises OSError if the stream ends early."""
        with self._post("/graphql/stream", document, variables, "text/event-stream", SILENCE_SECONDS) as stream:
            if _media_type(stream.headers) != "text/event-stream":
                raise self._unexpected(stream, "an event stream")
            event = None
            for line in _lines(stream):
                name, _, value = line.rstrip(b"\r\n").partition(b": ")
                if name == b"event":
                    event = value.strip()
                if event == b"complete":
                    return
                if name == b"data" and event == b"next":
                    try:
                        data = _data_of(value)
                    except ValueError as error:
                        raise UnexpectedResponse("%s sends an event that is not a GraphQL response: %s" % (self.url, ADVICE)) from error
                    yield data
        raise ConnectionError("%s closed the stream" % self.url)

    def _post(self, path, document, variables, accept, seconds):
        headers = {"Content-Type": "application/json", "Accept": accept}
        if self.token:
            _check_listener(self.url)
            headers["Authorization"] = "Bearer %s" % self.token
        body = json.dumps({"query": document, "variables": _given(variables)}, default=_json_value).encode()
        try:
            return self._http.open(urllib.request.Request(self.url + path, body, headers), timeout=seconds)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal_of(error) from None
        except OSError:
            raise
        except http.client.HTTPException as error:
            raise UnexpectedResponse("%s does not respond with HTTP: %s" % (self.url, ADVICE)) from error

    def _refusal_of(self, error):
        """Returns ConnectionError if a retry may succeed, UnexpectedResponse for a redirect, and Refused otherwise."""
        if 300 <= error.code < 400:
            target = re.sub(r"[?#].*", "", error.headers.get("Location") or "an unknown URL", flags=re.DOTALL)
            return UnexpectedResponse("%s responds with status %d and an unexpected redirect to %s: %s" % (self.url, error.code, target, ADVICE))
        try:
            found = _error_of(json.loads(error.read().decode()))
        except (ValueError, RecursionError, OSError, http.client.HTTPException):
            found = None
        message, code, failure = found or ("%s responds with status %d" % (self.url, error.code), None, None)
        # without a GraphQL error, a proxy in front of the gateway has failed
        if error.code in (429, 502, 503, 504) or (error.code >= 500 and found is None):
            return _Unavailable(message) if found else ConnectionError(message)
        return _refused(message, code, failure)

    def _unexpected(self, response, expected):
        encoding = response.headers.get("Content-Encoding")
        found = _media_type(response.headers) + (" in the encoding %s" % encoding if encoding else "")
        return UnexpectedResponse("%s responds with status %d and %s, expected %s: %s" % (self.url, response.status, found, expected, ADVICE))

    def _ask(self, field, document, **variables):
        return self._field(field, self.query(document, **variables))

    def _field(self, name, data):
        if name not in data:
            raise UnexpectedResponse("%s returned no field %s: %s" % (self.url, name, ADVICE))
        return data[name]

    def _change_request(self, mutation, change):
        declared = mutation[0].upper() + mutation[1:] + "Input!"
        document = "mutation ($input: %s) { %s(input: $input) { request { %s } %s } }" % (declared, mutation, REQUEST, ERRORS)
        return _accepted(self._ask(mutation, document, input=_with_text_sizes(change)))["request"]

    def _pages(self, field, document, page_of=lambda found: found, **variables):
        after = None
        while True:
            page = page_of(self._ask(field, document, after=after, **variables))
            for edge in page["edges"]:
                yield edge["node"]
            if not page["pageInfo"]["hasNextPage"]:
                return
            after = page["pageInfo"]["endCursor"]


def _checked_url(url):
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url.rstrip("/")
    except ValueError:
        pass  # for example, the port is not a number
    raise ValueError("TAPEGATE_URL must begin with http:// or https:// and a host, not %s" % json.dumps(url))


def _existing(request_id, request):
    """Returns a request. Raises NotFound if it is None."""
    if request is None:
        raise NotFound("there is no request %s, or you are not allowed to see it" % request_id)
    return request


def _with_text_sizes(values):
    """Converts maxBytes to text, because a JSON number must be below 2^53."""
    return {name: str(value) if name == "maxBytes" and value is not None else value for name, value in values.items()}


def _path_on_disk(file):
    """Returns the path of a file's restored or primary copy, or None if the copy was removed."""
    return file["path"] if file["isAtPrimaryPath"] else file["restoredPath"]


def _why_lost(disk):
    suspension = disk and disk["suspension"]
    if suspension and suspension["nextTryAt"]:
        return "on %s, which is failing: %s" % (disk["mountpoint"], suspension["reason"])
    return "no longer on disk"


def _json_value(value):
    """Converts a Python value for JSON. A datetime without a time zone is UTC. Raises TypeError for unsupported types."""
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, pathlib.PurePath):
        return value.as_posix()
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, collections.abc.Iterable) and not isinstance(value, (bytes, bytearray)):
        return list(value)
    raise TypeError("a value of type %s cannot be sent: %r" % (type(value).__name__, value))


def _given(values):
    return {name: value for name, value in values.items() if value is not None}


def _media_type(headers):
    return (headers.get("Content-Type") or "no content type").partition(";")[0].strip()


def _lines(stream):
    """Yields the lines of a response. Raises OSError if the connection breaks."""
    try:
        yield from stream
    except http.client.HTTPException as error:
        raise ConnectionError("the response ended early") from error


def _data_of(body):
    """Returns the data of a GraphQL response. Raises Refused for its first error, and ValueError if it is not a GraphQL response."""
    try:
        response = json.loads(body.decode())
        error = _error_of(response)
        if error:
            raise _refused(*error)
        if isinstance(response, dict) and isinstance(response.get("data"), dict) and not response.get("errors"):
            return _exact(response["data"])
    except RecursionError:
        pass
    raise ValueError("not a GraphQL response")


def _error_of(response):
    """Returns the message, the code and the other fields of the first error in a GraphQL response, or None if it contains no error."""
    errors = response.get("errors") if isinstance(response, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict) or not isinstance(first.get("message"), str):
        return None
    extensions = first.get("extensions") if isinstance(first.get("extensions"), dict) else {}
    return first["message"], extensions.get("code"), extensions


def _exact(value):
    """Converts BigInt fields from strings to integers."""
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: int(each) if name in INTEGERS and isinstance(each, str) else _exact(each) for name, each in value.items()}


def _accepted(payload):
    for error in payload["errors"]:
        raise _refused(error["message"], error["code"], error)
    return payload


def _own_file(name):
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "tapegate", name)


def _own_settings():
    """Returns the settings in config.json. Raises ValueError if they are not valid."""
    try:
        with open(_own_file("config.json"), encoding="utf-8") as file:
            settings = json.load(file)
    except OSError:
        return {}
    except ValueError as error:
        raise ValueError("%s is not JSON: %s" % (_own_file("config.json"), error)) from error
    if isinstance(settings, dict) and all(isinstance(each, str) for each in settings.values()):
        return settings
    raise ValueError('%s must contain a JSON object, such as {"server": "https://archive.example.org", "quota": "ada"}' % _own_file("config.json"))


def _stored_token(url):
    """Returns the token that `tapegate login` stored. Only the `tapegate` command renews an expired token of an identity provider."""
    try:
        with open(_own_file("tokens.json")) as file:
            found = os.fstat(file.fileno())
            if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
                raise Refused("other users can read or replace %s: run chmod 600, and create new tokens" % file.name)
            return json.load(file)[url]["token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_listener(url):
    """Raises Refused if another user of this host listens at an http URL. While the gateway is down, any user can listen on its port."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "http":
        return
    port = parts.port or 80
    try:
        hosts = {found[4][0].partition("%")[0] for found in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)}
    except OSError:
        return  # the connection will fail as well
    for uid in {uid for host in hosts for uid in _listeners(host, port)}:
        if not _is_expected(uid):
            raise Refused("no token was sent to %s: the program that listens there runs as user id %d, which is not trusted; expected your "
                          "own user, root, the user tapegate or the owner of DATA_DIR" % (url, uid))


def _listeners(host, port):
    """Yields the ids of users that listen on a port of this host, at one address or at all addresses. Works on Linux only."""
    wanted = ipaddress.ip_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host))
    try:
        with socket.socket(socket.AF_INET6 if wanted.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((str(wanted), 0))
    except OSError:
        return  # the address belongs to another host
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for _, local, _, state, _, _, _, uid, *_ in map(str.split, lines):
            packed, _, own_port = local.partition(":")
            if state != "0A" or int(own_port, 16) != port:
                continue
            # the kernel prints four-byte words in host byte order
            words = struct.unpack(">%dI" % (len(packed) // 8), bytes.fromhex(packed))
            address = ipaddress.ip_address(struct.pack("=%dI" % len(words), *words))
            address = getattr(address, "ipv4_mapped", None) or address
            if address.is_unspecified or address == wanted:
                yield int(uid)


def _is_expected(uid):
    import pwd  # not available on Windows
    data_dir = os.environ.get("DATA_DIR")
    if uid in (0, os.getuid()) or (data_dir and os.path.exists(data_dir) and os.stat(data_dir).st_uid == uid):
        return True
    try:
        return pwd.getpwnam("tapegate").pw_uid == uid
    except KeyError:
        return False


# commands


class _Usage(Exception):
    """Raised for invalid arguments."""


def main(arguments: Optional[list[str]] = None) -> int:
    """Runs a command and returns its exit code."""
    tapes = given = None
    try:
        given = _parser().parse_args(arguments)
        given.print_paths = getattr(given, "print_paths", False) or getattr(given, "null", False)
        try:
            tapes = Tapegate(given.url)
        except ValueError as error:
            raise _Usage(error) from error
        given.run(tapes, given)
    except _Usage as error:
        return _fail(error, USAGE)
    except (Incomplete, NotOnDisk) as error:
        return _fail(error, INCOMPLETE)
    except InvalidInput as error:
        return _fail(_with_option(error, given), USAGE)
    except (Refused, UnexpectedResponse) as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        cause = getattr(error, "reason", error)
        message = str(cause) if str(cause).startswith(tapes.url) else "%s cannot be reached: %s" % (tapes.url, cause)
        is_change = given.command in CHANGES and not (given.command == "request" and given.dry_run)
        if is_change and not isinstance(cause, (ConnectionRefusedError, socket.gaierror, _Unavailable)):
            return _fail("%s: the server may have made the change: check whether it did before you repeat the command" % message, FAILED)
        return _fail(message, UNREACHABLE)
    return 0


def _fail(error, code):
    _print_error("tapegate: %s" % error)
    return code


def _with_option(error, given):
    """Returns the message of InvalidInput, with the name of the command's option instead of the field."""
    field = error.field or ""
    option = {"files": "file", "paths": "file", "notifyOnFirstFile": "notify_first", "notifyOnLastFile": "notify_last", "expectedQuota": "quota"}.get(
        field, re.sub("[A-Z]", lambda match: "_" + match[0].lower(), field))
    name = "<id>" if field == "requestId" else "--" + option.replace("_", "-") if hasattr(given, option) else field
    message = str(error)
    return name + message[len(field):] if message.startswith(field + " ") else message


def _parser():
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Request files from tape and watch the progress.",
        epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 a request ended without all of its files, 4 the gateway does not respond.")
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--url", help="URL of the gateway (default: TAPEGATE_URL, else from config.json)")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name, run, description, with_id=False, with_paths=False):
        each = commands.add_parser(name, help=description, description=description)
        each.set_defaults(run=run)
        option = (each.add_mutually_exclusive_group() if with_paths else each).add_argument
        option("--json", action="store_true", help="print one JSON object per line")
        if with_paths:
            option("--print-paths", action="store_true", help="print only paths on disk, one per line, for xargs -d '\\n'")
            option("-0", "--null", action="store_true", help="print only paths on disk, each followed by a NUL character, for xargs -0")
        if with_id:
            each.add_argument("id", type=_number("<id>", 10))
        return each.add_argument

    def add_changes(option, more=""):
        option("--retention", metavar="DATE", help="keep the files on disk until a UTC date, or for a period such as 3d or 12h")
        option("--label", metavar="TEXT", help="name the request")
        option("--max-files", metavar="N", help="limit the number of files in the request")
        option("--max-bytes", metavar="SIZE", help="limit the size of the request, for example to 10T")
        option("--notify-first", metavar="ADDRESS", help="send email when the first file is on disk%s" % more)
        option("--notify-last", metavar="ADDRESS", help="send email when the request has finished%s" % more)

    def add_files(option):
        option("--file", action="extend", nargs="+", metavar="PATH",
               help="archive paths, @name to read paths from a file (one per line), or @- to read them from standard input")

    option = command("request", _request, "request files by path or pattern", with_paths=True)
    option("--quota", metavar="USER", help="charge this user's quota (default: the quota in config.json, or your own, or the quota that you joined first)")
    option("--pattern", metavar="TEXT", help="request all files whose path contains the text, including files added later")
    add_files(option)
    add_changes(option)
    option("--no-mail", dest="mail", action="store_false", help="send no email to the quota's address")
    option("--watch", action="store_true", help="show the progress until the request has finished")
    option("--dry-run", action="store_true", help="print an estimate without making a request")
    option = command("requests", _requests, "list requests, oldest first")
    option("--quota", metavar="USER", help="list only requests of this user")
    option("--match", metavar="TEXT", help="list only requests whose label, pattern or files' paths contain the text")
    option("--states", nargs="+", metavar="STATE", type=str.upper, choices=STATES, help="list only requests in these states: %s" % ", ".join(STATES).lower())
    option("--all", dest="states", action="store_const", const=STATES, help="include expired and cancelled requests")
    option = command("show", _show, "show a request and its files that are not yet on disk", with_id=True, with_paths=True)
    option("--limit", metavar="N", type=_number("--limit"), help="show at most N files (default: %d; no limit with --json)" % PEOPLE_LIMIT)
    command("watch", _watch, "show the progress of a request until it ends", with_id=True, with_paths=True)
    command("paths", _print_paths, "print where a request's files are on disk", with_id=True, with_paths=True)
    option = command("update", _update, "change a request", with_id=True)
    add_changes(option, more='; "own" means the quota\'s address, "none" no email')
    command("extend", _update, "change the time when a request expires", with_id=True)("retention", help="a UTC date, or a period from now such as 3d or 12h")
    option = command("retry", _retry, "retry the failed files of a request", with_id=True)
    option("--quota", metavar="USER", help="fail if the request does not belong to this user")
    option = command("release", _release, "release some files in a request before the request ends", with_id=True)
    add_files(option)
    option("--match", metavar="TEXT", help="release all files in the request whose path contains the text")
    option("--all", action="store_true", help="release all files in the request")
    command("cancel", _cancel, "end requests and release their files")("ids", nargs="+", metavar="id", type=_number("<id>", 10))
    option = command("ls", _ls, "list files whose path contains the text", with_paths=True)
    option("match", nargs="?")
    option("--stages", metavar="LETTERS", type=_stages_of, help="list only files in these stages: any of U, D, T, A, R")
    option("--withdrawn", action="store_true", help="list only withdrawn files")
    option("--limit", metavar="N", type=_number("--limit"), help="list at most N files (default: %d; no limit with --json or --print-paths)" % PEOPLE_LIMIT)
    command("quota", _quota, "show a quota and its usage")("user", nargs="?", help="default: as for the command request")
    return parser


# values of options


def _number(option, digits=9):
    def read(text):
        if re.fullmatch("[0-9]{1,%d}" % digits, text) and int(text) < 2 ** 31:
            return int(text)
        raise _Usage("%s must be a whole number, not %s" % (option, _quote(text)))
    return read


def _bytes_of(text):
    match = re.fullmatch(r"([0-9]{1,19})(?:\.([0-9]{1,6}))?\s*(?:([KMGTP])(i?))?B?", text)
    if match and not (match[2] and not match[3]):
        unit = (1024 if match[4] else 1000) ** " KMGTP".index(match[3] or " ")
        size = int(match[1]) * unit + int((match[2] or "").ljust(6, "0")) * unit // 10 ** 6
        if size < 2 ** 63:
            return size
    raise _Usage("--max-bytes must be a number of bytes, such as 500000000, 500M or 10T, not %s" % _quote(text))


def _stages_of(letters):
    for letter in letters:
        if letter.upper() not in STAGES:
            raise _Usage("--stages must contain only the letters U, D, T, A, R, not %s" % _quote(letter))
    return [STAGES[letter.upper()] for letter in letters]


def _now(tapes):
    """Returns the gateway's time, because the clock of this host may be wrong."""
    return _time_of(tapes._ask("plan", "{ plan { at } }")["at"])


def _time_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _retention(tapes, text):
    """Returns a time for a UTC date or time, or for a period from now."""
    span = re.fullmatch("([0-9]{1,6})([mhdw])", text)
    if span:
        return _now(tapes) + datetime.timedelta(minutes=int(span[1]) * {"m": 1, "h": 60, "d": 1440, "w": 10080}[span[2]])
    try:
        time_given = datetime.datetime.fromisoformat(text)
        if time_given.tzinfo is None:
            return time_given
    except ValueError:
        pass
    raise _Usage("--retention must be YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS (UTC), or how long from now, such as 3d or 12h, not %s" % _quote(text))


def _read_paths(given):
    """Returns the paths that --file names: paths, and lists of paths in files (@name) and on standard input (- or @-)."""
    paths = []
    for value in given:
        if value != "-" and not value.startswith("@"):
            paths.append(value)
            continue
        name = value.lstrip("@")
        try:
            content = sys.stdin.buffer.read() if name == "-" else pathlib.Path(name).read_bytes()
            paths += [line for line in re.split("\r?\n", content.decode("utf-8-sig")) if line]
        except OSError as error:
            raise Refused("cannot read %s: %s" % (name, (error.strerror or str(error)).lower())) from error
        except UnicodeDecodeError as error:
            raise Refused("--file %s: the list is not in UTF-8" % value) from error
    if not paths:
        raise _Usage("--file contains no paths")
    return paths


def _options(tapes, given):
    """Returns the options of a request that a command names. `update` removes a limit or an address with the value "none"."""
    def address(text):
        return "" if text == "own" and given.command == "update" else text

    options = {}
    for option, name, read in [
            ("retention", "retention", lambda text: _retention(tapes, text)), ("label", "label", str), ("max_files", "maxFiles", _number("--max-files")),
            ("max_bytes", "maxBytes", _bytes_of), ("notify_first", "notifyOnFirstFile", address), ("notify_last", "notifyOnLastFile", address)]:
        text = getattr(given, option, None)
        if text is not None:
            is_removed = text == "none" and given.command == "update" and option not in ("retention", "label")
            options[name] = None if is_removed else read(text)
    return options


def _chosen_quota(tapes, given):
    """Returns the quota that the command charges. Raises _Usage if the caller has none."""
    chosen = given or _own_settings().get("quota")
    caller = None if chosen else tapes._ask("caller", "{ caller { name authentication roles defaultQuota } }")
    if caller is None or caller["defaultQuota"]:
        return chosen or caller["defaultQuota"]
    if "USER" in caller["roles"] and caller["authentication"] != "OPEN":
        return caller["name"]
    raise _Usage('give --quota <user>, or set "quota" in %s' % _own_file("config.json"))


# requests


def _request(tapes, given):
    if (given.pattern is None) == (given.file is None):
        raise _Usage("give either --pattern or --file")
    if given.pattern == "":
        raise _Usage("--pattern must not be empty")
    files = given.file and _read_paths(given.file)
    for path in files or []:
        if path.endswith("/"):
            raise _Usage("--file takes paths of files: use --pattern %s for all files below a directory" % _quote(path))
    options = {"files": files, "pattern": given.pattern, **_options(tapes, given)}
    if given.mail:
        options.setdefault("notifyOnLastFile", "")
    quota = _chosen_quota(tapes, given.quota)
    if given.dry_run:
        return _estimate(tapes, given, tapes.estimate(quota, **options))
    request = tapes.create_request(quota, **options)
    given.id, given.command = request["requestId"], "watch"  # the change is made: from now on, the command only reads
    unknown = ", %s not in the catalogue" % _plural(request["filesUnknown"], "path") if request["filesUnknown"] else ""
    line = "request %d: %s, %s%s%s, kept until %s" % (given.id, _plural(request["filesTotal"], "file"), _size(request["bytesTotal"]),
                                                     _at_primary_path(request), unknown, _whole_time(request["retention"]))
    if given.print_paths:
        _print_error(line)
    else:
        _print(given, request, line)
    _note_logged_email(tapes, given)
    if given.watch or given.print_paths:
        return _watch(tapes, given)
    if not given.json:
        _print_directories({**request, "filesOnDisk": request["filesTotal"] if request["state"] == "COMPLETED" else request["filesAtPrimaryPath"]})
    missing = tapes._missing(given.id) if request["filesUnknown"] or request["filesTotal"] == 0 else []
    if request["state"] in FINISHED_STATES:
        return _require_none_missing(given.id, missing)
    for line in missing:
        _print_error(line)


def _estimate(tapes, given, estimate):
    """Prints an estimate. Raises Refused if the files do not fit into the quota, and Incomplete if a path or pattern matches no file."""
    if given.json:
        _print(given, estimate, "")
    else:
        _print_estimate(tapes, estimate)
    if not estimate["fitsQuota"]:
        raise Refused(_full_quota(estimate))
    if given.pattern and estimate["fileCount"] == 0:
        raise Incomplete(_no_match(given.pattern))
    if estimate["filesUnknown"] or estimate["fileCount"] == 0:
        raise Incomplete("%s not in the catalogue" % _plural(estimate["filesUnknown"], "path is", "paths are"))


def _print_estimate(tapes, estimate):
    count = estimate["filesUnknown"]
    unknown = tapes._unknown("%s not in the catalogue" % _plural(count, "path"), estimate["unknownPaths"], count) if count else []
    prices = ["%s %s at %s for %s, %s%s" % (each["amount"], each["currency"], each["libraryName"], _plural(each["fileCount"], "file"), _size(each["bytes"]),
                                            ": %s" % each["note"] if each["note"] else "") for each in estimate["prices"]]
    if len(prices) > 1:
        prices.append("%(amount)s %(currency)s in total" % estimate["price"] if estimate["price"] else "in several currencies")
    for is_shown, name, fact in [
        (True, "files", "%d, %s" % (estimate["fileCount"], _size(estimate["bytes"]))),
        (True, "on disk", "%d, %s%s" % (estimate["filesOnDisk"], _size(estimate["bytesOnDisk"]), _at_primary_path(estimate))),
        (True, "from tape", "%d, %s, on %s; %s" % (estimate["filesToRecall"], _size(estimate["bytesToRecall"]), _plural(estimate["volumeCount"], "volume"),
                                                   _plural(estimate["mountCount"], "mount"))),
        (estimate["filesOnTheirWay"], "", "%s already requested by other requests" % _plural(estimate["filesOnTheirWay"], "file is", "files are")),
        (estimate["volumesSuspended"], "", _plural(estimate["volumesSuspended"], "volume is suspended", "volumes are suspended")),
        (estimate["filesAlsoRequested"], "charged", "%d, %s: these files are already charged to the quota for other requests" % (
            estimate["filesAlsoRequested"], _size(estimate["bytesAlsoRequested"]))),
        (estimate["filesWithoutPlace"], "no position", "%d: the catalogue does not contain the files' positions" % estimate["filesWithoutPlace"]),
        *[(True, "" if n else "unknown", line[2:] if n else line) for n, line in enumerate(unknown)],
        (not estimate["hasRoom"], "no room", "files wait until the restore disks have enough free space"),
        (True, "quota", "%s: %s of %s used, %s with this request" % (
            estimate["user"], _size(estimate["quotaUsed"]), _size(estimate["quotaSize"]), _size(estimate["quotaUsedAfter"]))),
        *[(True, "" if n else "cost", price) for n, price in enumerate(prices)],
        (True, "end", _end(_now(tapes), estimate)),
    ]:
        if is_shown:
            print(_printable("%-12s%s" % (name, fact)))
    print("nothing was requested")


def _full_quota(estimate):
    size, requested = estimate["quotaSize"], estimate["bytes"]
    free = max(size - estimate["quotaUsed"], 0)
    compared = size if requested > size else free
    show = (lambda count: _plural(count, "byte")) if _size(requested) == _size(compared) else _size
    figures = "%s requested, %s of %s free" % (show(requested), show(free), show(size))
    if requested > size:
        return "the request does not fit in quota %s: %s; request fewer files, or ask an operator for a larger quota" % (_quote(estimate["user"]), figures)
    return "quota %s is full: %s; release files or cancel requests that are no longer needed, or ask an operator for a larger quota" % (
        _quote(estimate["user"]), figures)


def _end(now, estimate):
    if not estimate["end"]:
        return "unknown" + (": %s" % estimate["endUnknown"] if estimate["endUnknown"] else "")
    earliest, planned, latest = [_span((_time_of(estimate["end"][name]) - now).total_seconds()) for name in ("earliest", "planned", "latest")]
    note = "" if estimate["end"]["isMeasured"] else "estimate without measurements"
    if planned == "now":
        return "in a few seconds" + (" (%s)" % note if note else "")
    return "in about %s (%s to %s%s)" % (planned, earliest, latest, "; " + note if note else "")


def _watch(tapes, given):
    first = last = None
    shown_at, shown = -math.inf, None
    on_terminal = sys.stderr.isatty()

    def report(error):
        if last is None:
            raise error
        _print_error("no response from %s; trying again" % tapes.url)

    def draw():
        nonlocal shown_at, shown
        line = _printable(_progress(first, last))
        if line != shown:
            shown_at, shown = time.monotonic(), line
            room = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + line[:room] if on_terminal else line, end="" if on_terminal else "\n", file=sys.stderr, flush=True)

    try:
        for step in tapes.follow(given.id, on_outage=report, patience=PATIENCE_SECONDS):
            first, last = first or step, step
            if given.json:
                _print(given, step, "")
            elif step["state"] not in RELEASED_STATES and (on_terminal or time.monotonic() - shown_at >= LOG_SECONDS):
                draw()
        if shown:
            draw()
    except KeyboardInterrupt:
        _print_error("\n" * on_terminal + 'request %d continues: "%s watch %d" shows it again, "%s cancel %d" ends it' % (given.id, PROGRAM, given.id, PROGRAM, given.id))
        raise
    if shown and on_terminal:
        print(file=sys.stderr)
    if last is None:
        return
    lost = None
    if given.print_paths:
        _print_error(_outcome(last))
        try:
            _print_paths(tapes, given)
        except NotOnDisk as error:
            lost = error
    elif not given.json:
        print(_outcome(last), flush=True)
        if last["filesOnDisk"] and last["state"] not in RELEASED_STATES:
            _print_directories(_existing(given.id, tapes.request(given.id)))
    tapes._require_complete(given.id)
    if lost:
        raise lost


def _progress(first, now):
    """Returns a progress bar with the files, the bytes, the rate and the remaining time."""
    seconds = (_time_of(now["at"]) - _time_of(first["at"])).total_seconds()
    rate = (now["bytesOnDisk"] - first["bytesOnDisk"]) / seconds if seconds > 0 else 0
    is_done = now["filesOnDisk"] + now["filesFailed"] == now["filesTotal"]
    left = now["state"].lower()
    if is_done and now["state"] not in RELEASED_STATES:
        left = "ended" if now["filesFailed"] else "done"
    elif now["end"] and not is_done:
        end = now["end"]
        left = "%s left" % _span(max((_time_of(end["planned"]) - _time_of(end["at"])).total_seconds(), 1))
        left += "" if end["isMeasured"] else ", without measurements"
    part = 1.0 if is_done and now["bytesTotal"] == 0 else now["bytesOnDisk"] / max(now["bytesTotal"], 1)
    done = round(part * 30)
    elapsed = "%s elapsed  " % _span(now["elapsedSeconds"]) if (now["elapsedSeconds"] or 0) >= MIN_ELAPSED_SECONDS else ""
    return "%s%s %d%%  %d/%s%s  %s of %s  %s/s  %s%s" % ("█" * done, "░" * (30 - done), int(part * 100), now["filesOnDisk"], _plural(now["filesTotal"], "file"),
                                                    _failed(now), _size(now["bytesOnDisk"]), _size(now["bytesTotal"]), _size(rate), elapsed, left)


def _outcome(last):
    start = "request %d is %s: " % (last["requestId"], last["state"].lower())
    if last["state"] in RELEASED_STATES:
        return start + "%d of %s (%s) were on disk and have been released" % (last["filesOnDisk"], _plural(last["filesTotal"], "file"), _size(last["bytesOnDisk"]))
    return start + "%s on disk, %s%s" % (_plural(last["filesOnDisk"], "file"), _size(last["bytesOnDisk"]), _failed(last))


def _failed(counts):
    return ", %d failed" % counts["filesFailed"] if counts["filesFailed"] else ""


def _at_primary_path(counts):
    return ", %d of them at their primary path" % counts["filesAtPrimaryPath"] if counts["filesAtPrimaryPath"] else ""


def _other_paths(request):
    return 'some files are not at their archive paths: "%s show %d --print-paths" lists their actual paths' % (PROGRAM, request["requestId"])


def _note_logged_email(tapes, given):
    """Prints a note if the user gave an email address, but the site only logs emails."""
    if all(address in (None, "none") for address in (given.notify_first, given.notify_last)):
        return
    try:
        if not tapes.sends_email():
            _print_error(ONLY_LOGGED)
    except (OSError, Refused):
        pass  # the change was made, so the command succeeds without the note


def _print_directories(request):
    for mountpoint in request["restoredBelow"]:
        print("restored below %s, each at its archive path" % _printable(mountpoint))
    if not request["restoredBelow"] and request["filesOnDisk"] > request["filesAtPrimaryPath"]:
        print(_other_paths(request))


def _counts(request):
    """Returns text such as `17 of 20 files`, and text about missing files."""
    total = request["filesTotal"] + request["filesUnknown"] + request["filesRefused"]
    missing = [_plural(request["filesUnknown"], "unresolved path")] * (request["filesUnknown"] > 0)
    missing += ["%s over the quota" % _plural(request["filesRefused"], "file")] * (request["filesRefused"] > 0)
    return "%d of %s" % (request["filesOnDisk"], _plural(total, "file")), "; " * bool(missing) + ", ".join(missing)


def _requests(tapes, given):
    rows = []
    for request in tapes.requests(quota=given.quota, states=given.states, match=given.match):
        if given.json:
            _print(given, request, "")
        files, missing = _counts(request)
        rows.append([str(request["requestId"]), request["quota"]["user"], request["state"], files + _failed(request) + missing,
                     _size(request["bytesTotal"]), request["retention"][:19], request["label"]])
    if not rows and given.quota is not None:
        _existing_quota(tapes, given.quota)
    if not given.json:
        _print_table(["ID", "USER", "STATE", "ON DISK", "SIZE", "UNTIL", "LABEL"], rows)


def _show(tapes, given):
    if given.print_paths:
        return _print_paths(tapes, given)
    request = _existing(given.id, tapes.request(given.id))
    limit = given.limit if given.limit is not None else None if given.json else PEOPLE_LIMIT
    waiting = tapes.request_files(given.id, states=["WAITING", "FAILED"])
    files = list(itertools.islice(waiting, limit))
    is_cut = next(waiting, None) is not None
    for each in [request, *files] if given.json else []:
        _print(given, each, "")
    cut = "the first %s not on disk; --limit shows more" % ("file that is" if len(files) == 1 else "%d files that are" % len(files))
    if not given.json:
        _print_facts(_facts(tapes, request))
        if files:
            print()
            _print_table(["FILE", "STATE", "TRIES", "NEXT TRY", "REASON"], map(_file_row, files))
    if is_cut:
        (_print_error if given.json else print)(cut)
    missing = [] if given.json else tapes._missing(given.id)
    for line in [""] * bool(missing) + missing:
        print(_printable(line))


def _facts(tapes, request):
    is_released = request["state"] in RELEASED_STATES
    user, suspension = request["quota"]["user"], request["quota"]["suspension"]
    files, missing = _counts(request)
    reasons = collections.Counter()
    for edge in request["waiting"]["parts"]["edges"] if request["waiting"] else []:
        if edge["node"]["reason"] in ("NO_DRIVE", "NO_POSITION"):
            reasons[edge["node"]["explanation"]] += edge["node"]["fileCount"]
    selection = _selection(tapes, request)
    return [
        ("REQUEST %d" % request["requestId"], request["state"]),
        ("LABEL", request["label"]),
        *([("FILES", selection)] if selection else []),
        ("USER", "%s, %s" % (user, _suspension(suspension)) if suspension else user),
        ("PRIORITY", str(request["priority"])),
        ("CREATED", request["createdAt"][:19]),
        ("UNTIL", request["retention"][:19]),
        *[("EMAIL", "%s (%s)" % (request[name], when)) for name, when in [("notifyOnFirstFile", "first file"), ("notifyOnLastFile", "end")] if request[name]],
        *([("EMAIL", ONLY_LOGGED)] if (request["notifyOnFirstFile"] or request["notifyOnLastFile"]) and not tapes.sends_email() else []),
        ("WAS ON DISK" if is_released else "ON DISK", "%s, %s of %s%s%s" % (
            files, _size(request["bytesOnDisk"]), _size(request["bytesTotal"]), _at_primary_path(request), missing)),
        *[("DIRECTORY", mountpoint) for mountpoint in request["restoredBelow"] if not is_released],
        *([("PATHS", _other_paths(request))] if not is_released and not request["restoredBelow"]
          and request["filesOnDisk"] > request["filesAtPrimaryPath"] else []),
        *[("WAITING", "%s (%s)" % (why, _plural(count, "file"))) for why, count in reasons.items()],
        ("FAILED", _plural(request["filesFailed"], "file")),
        ("UNRESOLVED", _plural(request["filesUnknown"], "path")),
        ("REFUSED", "%s over the quota" % _plural(request["filesRefused"], "file"))]


def _selection(tapes, request):
    """Returns which files the user requested, or None if the label already shows the pattern or the path."""
    if request["pattern"]:
        return None if request["pattern"] == request["label"] else "all files whose path contains %s" % _quote(request["pattern"])
    first = tapes._ask("request", """query ($id: Int!) { request(requestId: $id) { files(first: 1) { edges { node { file { path } } } }
      unresolved(first: 1) { edges { node { path } } } } }""", id=request["requestId"])
    paths = [edge["node"]["file"]["path"] for edge in first["files"]["edges"]] + [edge["node"]["path"] for edge in first["unresolved"]["edges"]]
    more = sum(request[name] for name in ("filesTotal", "filesReleased", "filesUnknown", "filesRefused", "filesOverLimit")) - 1
    if not paths or (more <= 0 and paths[0] == request["label"]):
        return None
    return "%s and %s" % (paths[0], _plural(more, "other path")) if more > 0 else paths[0]


def _suspension(suspension):
    state = "draining" if suspension["mode"] == "DRAINING" else "suspended"
    return "%s: %s" % (state, suspension["reason"]) if suspension["reason"] else state


def _file_row(item):
    volume, error = item["file"]["volume"], item["lastError"]
    suspension = volume and volume["suspension"] if item["state"] == "WAITING" else None
    given_up = re.search(r"; given up after (\d+) tries$", error or "")
    tries = item["attempts"] if item["attempts"] is not None else given_up[1] if given_up else ""
    reasons = ["volume %s is %s" % (volume["name"], _suspension(suspension))] if suspension else []
    if error is not None and not (suspension and error in (suspension["reason"] or "")):
        reasons.append("%s: %s" % (item["lastErrorClass"], error))
    state = "RUNNING" if item["recallState"] == "RUNNING" else item["state"]
    return [item["file"]["path"], state, str(tries), (item["nextTryAt"] or "")[:19], "; ".join(reasons)]


def _print_paths(tapes, given):
    for path in tapes.restored_paths(given.id):
        _print_path(given, path)


def _print_path(given, path):
    if not given.json and not given.null and re.search(r"[\n\r]", path):
        raise Refused("path %s contains a line break: use the option -0, and xargs -0" % _quote(path))
    # a program that reads a pipe needs the unchanged path
    text = json.dumps(path) if given.json else _printable(path) if sys.stdout.isatty() else path
    print(text, end="\0" if given.null else "\n", flush=True)


def _update(tapes, given):
    changes = _options(tapes, given)
    if not changes:
        raise _Usage("nothing to change: give at least one option")
    if "retention" in changes and changes["retention"].replace(tzinfo=datetime.timezone.utc) <= _now(tapes):
        raise _Usage('--retention must be in the future, not %s; to end the request now, run "%s cancel %d"' % (_quote(given.retention), PROGRAM, given.id))
    request = tapes.update(given.id, **changes)
    _print_state(given, request, ": %s, %s, kept until %s" % (_plural(request["filesTotal"], "file"), _size(request["bytesTotal"]),
                                                              _whole_time(request["retention"])))
    _note_logged_email(tapes, given)


def _retry(tapes, given):
    request = tapes.retry(given.id, given.quota)
    waiting = request["filesTotal"] - request["filesOnDisk"] - request["filesFailed"]
    _print_state(given, request, ": %d of %s on disk, %d waiting, %d failed" % (
        request["filesOnDisk"], _plural(request["filesTotal"], "file"), waiting, request["filesFailed"]))


def _release(tapes, given):
    if [given.file is not None, given.match is not None, given.all].count(True) != 1:
        raise _Usage("give one of --file, --match and --all")
    if given.match == "":
        raise _Usage('--match must not be empty; "/" matches all paths')
    paths = given.file and _read_paths(given.file)
    before = _existing(given.id, tapes.request(given.id))
    left = tapes.release(given.id, match=given.match, paths=paths, all=given.all)
    files = max(left["filesReleased"] - before["filesReleased"], 0)
    unknown = max(before["filesUnknown"] - left["filesUnknown"], 0)
    released = _plural(files, "file") + (" and %s" % _plural(unknown, "unknown path") if unknown else "")
    _print_state(given, {**left, "filesReleasedNow": files}, ": %s released, %s left, %s" % (
        released, _plural(left["filesTotal"], "file"), _size(left["bytesTotal"])))


def _cancel(tapes, given):
    """Cancels requests. Raises Refused with all failures at the end."""
    failures = []
    for request_id in given.ids:
        try:
            _print_state(given, tapes.cancel(request_id))
        except Refused as error:
            failures.append(str(error))
    if failures:
        raise Refused("\n".join(failures))


def _print_state(given, request, more=""):
    _print(given, request, "request %d is %s%s" % (request["requestId"], request["state"].lower(), more))


def _require_none_missing(request_id, missing):
    if missing:
        heading = ["request %d does not contain all requested files yet:" % request_id] * (len(missing) > 1)
        raise Incomplete("\n".join(map(_printable, heading + missing)))


# catalogue and quotas


def _ls(tapes, given):
    limit = given.limit if given.limit is not None else None if given.json or given.print_paths else PEOPLE_LIMIT
    count, found = 0, tapes.files(given.match, given.stages, given.withdrawn)
    for count, file in enumerate(itertools.islice(found, limit), 1):
        if given.print_paths:
            path = _path_on_disk(file)
            if path is not None:
                _print_path(given, path)
            continue
        place = "  at %s" % file["restoredPath"] if file["restoredPath"] else ""
        why = "  (%s)" % file["withdrawnReason"] if file["withdrawnReason"] else ""
        letter = {stage: letter for letter, stage in STAGES.items()}[file["stage"]]
        _print(given, file, "%s  %9s  %s%s%s" % (letter, _size(file["size"]), file["path"], place, why))
    if next(found, None) is not None:
        total = tapes._ask("tapeFiles", """query ($match: String, $stages: [Stage!], $withdrawn: Boolean) {
          tapeFiles(match: $match, stages: $stages, onlyWithdrawn: $withdrawn) { totalCount } }""",
                           match=given.match, stages=given.stages, withdrawn=given.withdrawn)["totalCount"]
        note = "%d of %s; --limit shows more" % (count, _plural(total, "file"))
        (_print_error if given.json or given.print_paths else print)(note)
    elif count == 0 and given.match:
        _print_error(_no_match(given.match, "at these stages" if given.stages else "in the catalogue"))


def _quota(tapes, given):
    quota = _existing_quota(tapes, _chosen_quota(tapes, given.user))
    if given.json:
        return _print(given, quota, "")

    def exact(count):
        return _plural(count, "byte") + (" (%s)" % _size(count) if count >= 1000 else "")

    _print_facts([("USER", quota["user"]), ("SIZE", exact(quota["size"])), ("USED", exact(quota["used"])),
                  ("FREE", exact(max(quota["size"] - quota["used"], 0))), ("WEIGHT", "%g" % quota["weight"]), ("EMAIL", quota["email"] or ""),
                  ("NOTES", quota["notes"] or "")])


def _existing_quota(tapes, user):
    quota = tapes.quota(user)
    if quota is None:
        raise NotFound("there is no quota %s, or you are not allowed to see it" % _quote(user))
    return quota


# text


def _no_match(text, where="in the catalogue"):
    return "no file %s has a path that contains %s%s" % (where, _quote(text), _hint([text]))


def _hint(texts):
    return " (case-sensitive%s)" % ("; * ? [ ] are literal" if re.search(r"[*?\[\]]", "".join(texts)) else "")


def _listed(lines, count):
    return ["  %s" % line for line in lines] + ["  and %d more" % (count - len(lines))] * (0 < len(lines) < count)


def _quote(text):
    return json.dumps(text, ensure_ascii=False)


def _plural(count, one, many=None):
    return "%d %s" % (count, one if count == 1 else many or one + "s")


def _size(count):
    """Formats bytes with three digits and a decimal unit: 1.50 MB."""
    unit, value = 0, float(count)
    while value >= 999.5 and unit < 6:
        unit, value = unit + 1, value / 1000
    if unit == 0:
        return _plural(round(value), "byte")
    return "%.*f %s" % (2 if value < 9.995 else 1 if value < 99.95 else 0, value, ["kB", "MB", "GB", "TB", "PB", "EB"][unit - 1])


def _span(seconds):
    if seconds < 1:
        return "now"
    if seconds < 7200:
        return "%d s" % round(seconds) if seconds < 120 else "%d min" % round(seconds / 60)
    value, unit = (seconds / 3600, "h") if seconds < 48 * 3600 else (seconds / 86400, "days")
    return "%s %s" % (("%.1f" % value).replace(".0", "") if value < 100 else "%.0f" % value, unit)


def _whole_time(text):
    return re.sub(r"\.\d+", "", text)


def _print_facts(facts):
    width = max(len(name) for name, _ in facts) + 2
    for name, fact in facts:
        print(_printable(name.ljust(width) + fact).rstrip())


def _print_table(header, rows):
    cells = [[_printable(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def _print(given, value, line):
    print(json.dumps(value) if given.json else _printable(line), flush=True)


def _print_error(text):
    """Prints to standard error, so that scripts can read standard output."""
    for line in str(text).split("\n"):
        print(_printable(line), file=sys.stderr, flush=True)


def _printable(text):
    """Replaces unsafe characters: users choose the names of files."""
    return UNSAFE.sub("\ufffd", text)


if __name__ == "__main__":
    sys.exit(main())
