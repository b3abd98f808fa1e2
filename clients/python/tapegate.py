#!/usr/bin/env python3
"""A Tapegate client in one file, for Python 3.7 and newer, without dependencies. Import it as a module, or run it as a command.

    from tapegate import Tapegate

    tapes = Tapegate("https://tapes.example.org")      # or TAPEGATE_URL, or `server` in config.json
    request = tapes.create_request("alice", pattern="/ocean/2024/")
    for step in tapes.follow(request["requestId"]):
        print(step["state"], step["filesOnDisk"], "of", step["filesTotal"])
    for path in tapes.restored_paths(request["requestId"]):
        print(path)

The client uses GraphQL; `query` runs any document. Sizes are integers in bytes, times are RFC 3339 strings in UTC. A request that the gateway
rejects raises `Refused` with the error code (`code`) and all fields of the failure (`failure`). An unreachable gateway raises `OSError`.
If the response is not from a gateway, but for example from a proxy that shows a login page, its subclass `UnexpectedResponse` is raised.

The token comes from `token=`, from TAPEGATE_TOKEN, or from `tapegate login`. `python3 tapegate.py --help` lists the commands.
"""

import argparse
import collections.abc
import datetime
import http.client
import ipaddress
import itertools
import json
import os
import pathlib
import re
import socket
import ssl
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

__all__ = ["NotOnDisk", "Refused", "Tapegate", "UnexpectedResponse"]

#: BigInt fields of the schema. JSON contains them as strings, because many JSON parsers round large numbers.
INTEGERS = {
    "available", "bytes", "bytesAlsoRequested", "bytesAtPrimaryPath", "bytesOnDisk", "bytesRestored", "bytesRunning",
    "bytesToRecall", "bytesTotal", "bytesWaiting", "copyPosition", "depthBytes", "eventId", "free", "stagedBytes", "maxBytes",
    "position", "quotaSize", "quotaUsed", "quotaUsedAfter", "requestFiles", "requested", "reserved", "sent",
    "size", "used",
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

#: Exit codes, as of the `tapegate` command.
FAILED, USAGE, INCOMPLETE, UNREACHABLE = 1, 2, 3, 4

#: Commands that a script must not repeat if the gateway might have processed them.
CHANGES = {"request", "retry", "cancel", "release"}

#: Maximum number of failed files, or of missing paths, in a message.
NAMED = 3

#: Characters that move the cursor of a terminal, begin a line, or change the direction of text.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

REQUEST = """requestId label pattern state requestDate retention filesTotal filesOnDisk filesFailed filesUnknown
  filesRefused filesOverLimit filesReleased bytesTotal bytesOnDisk restoredBelow quota { user }"""

ERRORS = "errors { code message ... on InvalidInput { field } ... on QuotaExceeded { requested available size used } }"


class Refused(Exception):
    """Raised if the gateway rejects a request or cannot process it."""

    def __init__(self, message, code=None, failure=None):
        super().__init__(message)
        #: Error code, such as NOT_FOUND, FORBIDDEN or QUOTA_EXCEEDED.
        self.code = code
        #: All fields of the GraphQL failure.
        self.failure = failure or {}


class UnexpectedResponse(OSError):
    """Raised if the response is not from a Tapegate gateway, but for example from a proxy's login page. A retry does not help."""


class _Unavailable(ConnectionError):
    """Raised if the gateway reports that it cannot process a request now."""


class NotOnDisk(Exception):
    """Raised if files of a request are no longer on disk, for example because a copy was removed outside Tapegate, or because a disk fails."""

    def __init__(self, message, paths):
        super().__init__(message)
        #: Archive paths of the files.
        self.paths = paths


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, because another host would receive the token."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


class Tapegate:
    """A connection to one gateway with one token. Several threads may use one object."""

    def __init__(self, url=None, token=None, ca_file=None):
        """Connects to `url`, or else to TAPEGATE_URL, or to `server` in config.json.

        `ca_file`: certificates of the accepted authorities, instead of the system's. Raises ValueError for an invalid URL or config.json.
        """
        self.url = _checked_url(url or os.environ.get("TAPEGATE_URL") or _own_settings().get("server") or "http://127.0.0.1:8080")
        self.token = token or os.environ.get("TAPEGATE_TOKEN") or _stored_token(self.url)
        tls = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file))] if self.url.startswith("https:") else []
        self._http = urllib.request.build_opener(_NoRedirects, *tls)

    # requests

    def create_request(self, quota, files=None, pattern=None, **options):
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

    def estimate(self, quota, files=None, pattern=None):
        """Estimates a request, without creating it."""
        chosen = _given({"quota": quota, "files": files, "pattern": pattern})
        document = """query ($input: CreateRequestInput!) { estimateRequest(input: $input) { estimate {
          files bytes filesOnDisk bytesOnDisk filesAlsoRequested bytesAlsoRequested filesToRecall bytesToRecall filesUnknown unknownPaths volumes mounts
          quotaSize quotaUsed quotaUsedAfter isEnough hasRoom endUnknown end { earliest planned latest }
          price { amount currency } } %s } }""" % ERRORS
        return _accepted(self._ask("estimateRequest", document, input=chosen))["estimate"]

    def request(self, request_id):
        """Returns a request, or None if it does not exist or the caller is not allowed to see it."""
        return self._ask("request", "query ($id: Int!) { request(requestId: $id) { %s waiting { queuePosition endUnknown end { planned } } } }" % REQUEST,
                         id=request_id)

    def requests(self, quota=None, states=None):
        """Yields all requests that the caller may see, oldest first."""
        document = """query ($quota: String, $states: [RequestState!], $after: String) {
          page: requests(quota: $quota, states: $states, first: 100, after: $after) {
            pageInfo { hasNextPage endCursor } edges { node { %s } } } }""" % REQUEST
        return self._pages("page", document, quota=quota, states=states)

    def update(self, request_id, **changes):
        """Changes a request. changes: the options of `create_request`, and quota."""
        return self._change_request("updateRequest", {"requestId": request_id, **changes})

    def retry(self, request_id):
        """Retries the failed files of a request."""
        return self._change_request("retryRequest", {"requestId": request_id})

    def release(self, request_id, match=None, paths=None):
        """Releases files before the request ends: files whose path contains `match`, the given paths, or else all files."""
        if match is None and paths is None:
            match = EVERY_PATH
        return self._change_request("releaseFiles", _given({"requestId": request_id, "match": match, "paths": paths}))

    def cancel(self, request_id):
        """Cancels a request and removes its files from disk."""
        return self._change_request("cancelRequest", {"requestId": request_id})

    def request_files(self, request_id, states=None):
        """Yields the files of a request, each with state, error, errorClass and file { path size restoredPath }."""
        document = """query ($id: Int!, $states: [RequestFileState!], $after: String) { request(requestId: $id) {
          files(first: 500, after: $after, states: $states) { pageInfo { hasNextPage endCursor }
            edges { node { state size error errorClass lastError nextTry
              file { path size stage restoredPath isAtPrimaryPath checksum adler32 disk { mountpoint suspension { nextTry reason } } } } } } } }"""

        def files_of(request):
            if request is None:
                raise Refused("there is no request %s, or you are not allowed to see it" % request_id, "NOT_FOUND")
            return request["files"]

        return self._pages("request", document, files_of, id=request_id, states=states)

    def failed_files(self, request_id):
        """Yields the failed files of a request, each with path, errorClass and error."""
        for item in self.request_files(request_id, states=["FAILED"]):
            yield {"path": item["file"]["path"], "errorClass": item["errorClass"], "error": item["error"]}

    def restored_paths(self, request_id):
        """Yields the paths on disk of a request's files. At the end, raises NotOnDisk if files are missing, released or on a failing disk."""
        request = self._ask("request", "query ($id: Int!) { request(requestId: $id) { state } }", id=request_id)
        state = request and request["state"]
        is_released = state in ("CANCELLED", "EXPIRED")
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

    def follow(self, request_id, on_outage=None):
        """Yields each progress event of a request until it is finished. Reconnects after errors, without missing or repeating events.

        on_outage: a function that is called with the OSError when the gateway stops responding, once per outage.
        Raises Refused and UnexpectedResponse, because another attempt would fail as well.
        """
        document = """subscription ($id: Int!, $after: BigInt) { requestProgress(requestId: $id, after: $after) {
          eventId state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk bytesPerSecond eta { earliest planned latest } at } }"""
        after, tries = None, 0
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
                if tries == 0 and on_outage:
                    on_outage(error)
            time.sleep(min(LONGEST_PAUSE_SECONDS, 2 ** tries))
            tries += 1

    # catalogue and quotas

    def files(self, match=None, stages=None):
        """Yields the files in the catalogue whose path contains `match`, ordered by path."""
        document = """query ($match: String, $stages: [Stage!], $after: String) {
          page: tapeFiles(match: $match, stages: $stages, first: 500, after: $after, count: ESTIMATED) {
            pageInfo { hasNextPage endCursor } edges { node { path size stage restoredPath checksum adler32 } } } }"""
        return self._pages("page", document, match=match, stages=stages)

    def quota(self, user):
        """Returns a quota, or None if it does not exist or the caller is not allowed to see it."""
        return self._ask("quota", "query ($user: String!) { quota(user: $user) { user size used email } }", user=user)

    # GraphQL

    def query(self, document, **variables):
        """Returns the data of a query or mutation. Raises Refused, OSError if the gateway is unreachable, or its subclass UnexpectedResponse."""
        with self._post("/graphql", document, variables, "application/json", RESPONSE_SECONDS) as response:
            try:
                return _data_of(response.read())
            except http.client.HTTPException as error:
                raise ConnectionError("the response ended early") from error
            except ValueError as error:
                raise self._unexpected(response, "a GraphQL response") from error

    def subscribe(self, document, **variables):
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
        message, code = found or ("%s responds with status %d" % (self.url, error.code), None)
        # without a GraphQL error, a proxy in front of the gateway has failed
        if error.code in (429, 502, 503, 504) or (error.code >= 500 and found is None):
            return _Unavailable(message) if found else ConnectionError(message)
        return Refused(message, code)

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
        return _accepted(self._ask(mutation, document, input=change))["request"]

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


def _path_on_disk(file):
    """Returns the path of a file's restored or primary copy, or None if the copy was removed."""
    return file["path"] if file["isAtPrimaryPath"] else file["restoredPath"]


def _why_lost(disk):
    suspension = disk and disk["suspension"]
    if suspension and suspension["nextTry"]:
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
            raise Refused(*error)
        if isinstance(response, dict) and isinstance(response.get("data"), dict) and not response.get("errors"):
            return _exact(response["data"])
    except RecursionError:
        pass
    raise ValueError("not a GraphQL response")


def _error_of(response):
    """Returns the message and the code of the first error in a GraphQL response, or None if it contains no error."""
    errors = response.get("errors") if isinstance(response, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict) or not isinstance(first.get("message"), str):
        return None
    extensions = first.get("extensions")
    return first["message"], extensions.get("code") if isinstance(extensions, dict) else None


def _exact(value):
    """Converts BigInt fields from strings to integers."""
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: int(each) if name in INTEGERS and isinstance(each, str) else _exact(each) for name, each in value.items()}


def _accepted(payload):
    for error in payload["errors"]:
        raise Refused(error["message"], error["code"], error)
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


class _Incomplete(Exception):
    """Raised if a request has ended without all of its files."""


class _Usage(Exception):
    """Raised for invalid arguments."""


def main(arguments=None):
    given = _parser().parse_args(arguments)
    try:
        tapes = Tapegate(given.url)
    except ValueError as error:
        return _fail(error, USAGE)
    except Refused as error:
        return _fail(error, FAILED)
    try:
        given.run(tapes, given)
    except _Usage as error:
        return _fail(error, USAGE)
    except (_Incomplete, NotOnDisk) as error:
        return _fail(error, INCOMPLETE)
    except Refused as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except UnexpectedResponse as error:
        return _fail(error, FAILED)
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


def _parser():
    parser = argparse.ArgumentParser(
        prog="tapegate.py", description="Request files from tape and watch the progress.",
        epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 a request ended without all of its files, 4 the gateway does not respond.")
    parser.add_argument("--url", help="URL of the gateway (default: TAPEGATE_URL, else from config.json)")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True

    def command(name, run, description, with_id=False):
        each = commands.add_parser(name, help=description, description=description)
        each.set_defaults(run=run)
        each.add_argument("--json", action="store_true", help="print one JSON object per line")
        if with_id:
            each.add_argument("id", type=int)
        return each

    request = command("request", _request, "request files by path or pattern")
    request.add_argument("--quota", help="charge this user's quota (default: the quota in config.json, or your own, or the quota "
                         "that you joined first)")
    request.add_argument("--pattern", help="request all files whose path contains the text, including files added later")
    request.add_argument("--file", action="append", metavar="PATH", help="request this archive path; may be repeated")
    request.add_argument("--label", help="name the request")
    request.add_argument("--dry-run", action="store_true", help="print an estimate without making a request")
    request.add_argument("--watch", action="store_true", help="show the progress until the request has finished")
    listed = command("requests", _requests, "list requests, oldest first")
    listed.add_argument("--quota", help="list only requests of this user")
    command("show", _show, "show a request", with_id=True)
    command("watch", _watch, "show the progress of a request until it ends", with_id=True)
    command("paths", _paths, "print where a request's files are on disk", with_id=True)
    command("retry", lambda tapes, given: _print_request(given, tapes.retry(given.id)), "retry the failed files of a request", with_id=True)
    command("cancel", lambda tapes, given: _print_request(given, tapes.cancel(given.id)), "cancel a request", with_id=True)
    release = command("release", lambda tapes, given: _print_request(given, tapes.release(given.id, match=given.match)), "release files before the request ends", with_id=True)
    release.add_argument("--match", help="release only files whose path contains the text")
    found = command("ls", _ls, "list files whose path contains the text")
    found.add_argument("match", nargs="?")
    command("quota", _quota, "show a quota and its usage").add_argument("user")
    return parser


def _request(tapes, given):
    if (given.pattern is None) == (given.file is None):
        raise _Usage("give either --pattern or --file")
    given.quota = given.quota or _own_settings().get("quota") or _own_quota(tapes)
    if given.dry_run:
        estimate = tapes.estimate(given.quota, files=given.file, pattern=given.pattern)
        line = "%s, %s: %d on disk, %d from tape on %s" % (
            _plural(estimate["files"], "file"), _plural(estimate["bytes"], "byte"),
            estimate["filesOnDisk"], estimate["filesToRecall"], _plural(estimate["volumes"], "volume"))
        _print(given, estimate, line)
        return _require_possible(given, estimate)
    request = tapes.create_request(given.quota, files=given.file, pattern=given.pattern, label=given.label)
    _print_request(given, request)
    if given.watch:
        given.id = request["requestId"]
        _watch(tapes, given)
    elif request["state"] in ("COMPLETED", "PARTIAL"):
        _require_all(tapes, request)
    else:
        for line in _missing(request):
            _print_error(line)


def _own_quota(tapes):
    """Returns the default quota of the caller. Raises _Usage if the caller has none."""
    caller = tapes._ask("caller", "{ caller { name authentication roles defaultQuota } }")
    if caller["defaultQuota"]:
        return caller["defaultQuota"]
    if "USER" not in caller["roles"] or caller["authentication"] == "OPEN":
        raise _Usage("--quota is required: %s has no quota" % caller["name"])
    return caller["name"]


def _require_possible(given, estimate):
    """Raises Refused if the estimate exceeds the quota, and _Incomplete if given files do not exist."""
    if not estimate["isEnough"]:
        free = max(estimate["quotaSize"] - estimate["quotaUsed"], 0)
        raise Refused("quota %s is full: %s requested, %s of %s free; release files or cancel requests that are no longer needed" % (
            json.dumps(given.quota), _size(estimate["bytes"]), _size(free), _size(estimate["quotaSize"])))
    if estimate["filesUnknown"] > 0:
        more = ["  and %d more" % (estimate["filesUnknown"] - NAMED)] if estimate["filesUnknown"] > NAMED else []
        names = ["  %s" % path for path in estimate["unknownPaths"][:NAMED]]
        what = "%s not in the catalogue:" % _plural(estimate["filesUnknown"], "path")
        raise _Incomplete("\n".join([what, *names, *more]))
    if estimate["files"] == 0:
        raise _Incomplete(_no_match(given.pattern or ""))


def _watch(tapes, given):
    def report(_error):
        _print_error("no response from %s; trying again" % tapes.url)

    for step in tapes.follow(given.id, on_outage=report):
        line = "%s %d of %s, %d failed, %d of %s" % (
            step["state"], step["filesOnDisk"], _plural(step["filesTotal"], "file"), step["filesFailed"],
            step["bytesOnDisk"], _plural(step["bytesTotal"], "byte"))
        _print(given, step, line)
    request = tapes.request(given.id)
    if request:
        _require_all(tapes, request)


def _require_all(tapes, request):
    """Raises _Incomplete, with the missing files, if a request has ended without all of its files."""
    if request["state"] == "COMPLETED":
        missing = _missing(request)
        if missing:
            raise _Incomplete("request %d has finished without all of its files: %s" % (request["requestId"], "; ".join(missing)))
        return
    lines = ["request %d is %s" % (request["requestId"], request["state"])]
    if request["state"] == "PARTIAL":
        lines[0] += ": %d of %s failed" % (request["filesFailed"], _plural(request["filesTotal"], "file"))
        lines += _reasons(tapes, request)
    raise _Incomplete("\n".join(lines))


def _missing(request):
    """Returns a line for each kind of missing file. Files beyond the request's own limits do not count."""
    lines = []
    count = request["filesTotal"] + request["filesReleased"] + request["filesUnknown"] + request["filesRefused"] + request["filesOverLimit"]
    if request["pattern"] and count == 0:
        lines.append(_no_match(request["pattern"]))
    if request["filesUnknown"] > 0:
        lines.append("%s not in the catalogue" % _plural(request["filesUnknown"], "path"))
    if request["filesRefused"] > 0:
        lines.append("%s over the quota" % _plural(request["filesRefused"], "file"))
    return lines


def _reasons(tapes, request):
    """Returns a line with the error for each of the first failed files."""
    failed = itertools.islice(tapes.request_files(request["requestId"], states=["FAILED"]), NAMED)
    lines = [_printable("  %s: %s" % (item["file"]["path"], item["error"])) for item in failed]
    if request["filesFailed"] > len(lines) > 0:
        lines.append("  and %d more" % (request["filesFailed"] - len(lines)))
    return lines


def _requests(tapes, given):
    for request in tapes.requests(quota=given.quota):
        _print_request(given, request)


def _show(tapes, given):
    request = tapes.request(given.id)
    if request is None:
        raise Refused("there is no request %d, or you are not allowed to see it" % given.id)
    _print_request(given, request)
    if not given.json and request["filesFailed"] > 0:
        for line in _reasons(tapes, request):
            print(line)
    if not given.json:
        for line in _missing(request):
            print(_printable(line))


def _paths(tapes, given):
    for path in tapes.restored_paths(given.id):
        if not given.json and re.search(r"[\n\r]", path):
            raise Refused("the path %s contains a line break: use --json" % json.dumps(path, ensure_ascii=False))
        # a program that reads a pipe needs the unchanged path
        print(json.dumps(path) if given.json else _printable(path) if sys.stdout.isatty() else path, flush=True)


def _ls(tapes, given):
    file = None
    for file in tapes.files(match=given.match):
        place = "  at %s" % file["restoredPath"] if file["restoredPath"] else ""
        _print(given, file, "%-10s %14d  %s%s" % (file["stage"], file["size"], file["path"], place))
    if file is None and given.match:
        _print_error(_no_match(given.match))


def _no_match(text):
    wildcards = "; * ? [ ] are literal" if re.search(r"[*?\[\]]", text) else ""
    return "no file in the catalogue has a path that contains %s (case-sensitive%s)" % (json.dumps(text, ensure_ascii=False), wildcards)


def _quota(tapes, given):
    quota = tapes.quota(given.user)
    if quota is None:
        raise Refused("there is no quota %s, or you are not allowed to see it" % json.dumps(given.user))
    _print(given, quota, "%s: %d of %s used" % (quota["user"], quota["used"], _plural(quota["size"], "byte")))


def _print_request(given, request):
    failed = ", %d failed" % request["filesFailed"] if request["filesFailed"] > 0 else ""
    missing = request["filesUnknown"] + request["filesRefused"]
    unknown = "; %s" % _plural(request["filesUnknown"], "unresolved path") if request["filesUnknown"] > 0 else ""
    line = "request %d is %s: %d of %s%s%s, kept until %s" % (
        request["requestId"], request["state"], request["filesOnDisk"], _plural(request["filesTotal"] + missing, "file"), failed, unknown,
        request["retention"])
    _print(given, request, line)


def _plural(count, one):
    return "%d %s" % (count, one if count == 1 else one + "s")


def _size(count):
    """Formats bytes with three digits and a decimal unit: 1.50 MB."""
    if count < 1000:
        return _plural(count, "byte")
    exponent = min((len(str(count)) - 1) // 3, 6)
    value = count / 1000 ** exponent
    return "%.*f %s" % (2 if value < 10 else 1 if value < 100 else 0, value, ["kB", "MB", "GB", "TB", "PB", "EB"][exponent - 1])


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
